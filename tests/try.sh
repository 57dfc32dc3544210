# Of tests of the command, read by them: runs it, keeps what it says, counts what is not as it should be. Wants bin and a
# folder of its own to stand in; patience: seconds until a run counts as hanging.
fails=0 n=0

# try CODE ARGS...: runs, keeps out and err, compares the exit code. Reads from $in where that is said.
try() {
    want=$1
    shift
    n=$((n + 1))
    what="sonde $*"
    timeout "${patience:-120}" "$bin" "$@" >out 2>err <"${in:-/dev/null}"
    rc=$?
    [ $rc = "$want" ] || bad "exit $rc, not $want"
}
bad() {
    fails=$((fails + 1))
    echo "FAIL $what: $1"
    sed 's/^/    /' err | head -3
}
out() { grep -qF -- "$1" out || bad "stdout lacks: $1"; }
err() { grep -qF -- "$1" err || bad "stderr lacks: $1"; }
