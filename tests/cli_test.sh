#!/bin/sh
# The command line as people and scripts meet it: help, suggestions, exit codes, colours, valid JSON, honest failures.
# SONDE_BIN names the binary. Needs python3 for checking JSON (skipped without).
bin=${SONDE_BIN:?SONDE_BIN is not set}
[ -x "$bin" ] || { echo "cli_test: $bin is missing"; exit 1; }
here=$(cd "$(dirname "$0")" && pwd)
golden=$here/golden
readme=$(cd "$(dirname "$0")/.." && pwd)/README.md
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
unset NO_COLOR
. "$here/try.sh"
no_out() { [ ! -s out ] || bad "stdout is not empty"; }
no_err() { [ ! -s err ] || bad "stderr is not empty"; }
json() {
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys
def no(x): raise ValueError("not JSON: " + x)
json.load(open("out"), parse_constant=no)' 2>err || bad "stdout is not one JSON document"
}

# ---- help on every level
try 2; out "Usage: sonde VERB"
try 0 --help; out "wirings"; out "Exit status"; no_err
try 0 -h; out "Usage"
try 0 help; out "Usage"
try 0 --version; out "sonde "
try 0 version; out "sonde "
try 0 version --json; json
try 0 help keys; out "layers"; out "width"
try 0 help options; out "--seeds"
try 0 help formula; out "F(x)/sqrt(l)"; out "scalar(v)"
for verb in $("$bin" help | sed -n '/^Verbs/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    try 0 "$verb" --help; out "Usage: sonde $verb"; out "Examples"; no_err
    try 0 help "$verb"; out "Usage: sonde $verb"
    try 0 "$verb" some words --nonsense -h; out "Usage: sonde $verb"
done

# ---- bad words: exit 2, nothing on stdout, the nearest name
try 2 wirigns; err "did you mean wirings?"; no_out
try 0 measure pre layers=2 width=8 --seeds 2 --bands none --timings --json -q; out '"seconds": {"draw": ['
try 0 measure pre layers=2 width=8 --seeds 2 --bands none --timings; err "s to draw its weights"
small="layers=2 width=32 heads=2 vocab=500 context=64"
try 0 describe gpt2 $small --plan --batch 4 --recompute layers; out "4 sequences of 64 tokens, f32, adamw"; out "* layers"
try 0 describe gpt2 $small --plan --batch 4 --tokens 16 --accumulate 2 --ema 0.9 --dtype f64; out "f64 in 2 parts"; out "average"
try 0 describe gpt2 $small --plan --json; json; out '"flops_again"'
try 0 describe resnet-v2 --plan --image-size 28 --batch 2; out "2 images of 28 x 28"
try 2 describe gpt2 --batch 4; err "--batch needs --plan"; no_out
try 2 describe pre layers=2 --plan; err "give outputs=CLASSES"; no_out
try 2 describe gpt2 $small --plan --recompute all; err "none|norms|layers"; no_out
try 2 measure pre --labels x; err "--labels needs --data"; no_out
try 0 predict pre layers=2 width=8 --tokens 4; err "--batch counts them"
try 0 demo slides-forward closed-forms --quick --time-limit 1ms -o limited; err "left no room for 1 of 2 panels"
try 2 measure --panel closed-forms --seeds 3; err "--seeds is for a SPEC"; no_out
try 2 measure pre --panel closed-forms; err "would be ignored"; no_out
try 2 frobnicate; err "frobnicate"; no_out
try 2 wirings --jsn; err "did you mean --json?"; no_out
try 2 wirings depnorm; err "did you mean deepnorm?"; no_out
try 2 models gpt; err "gpt"; no_out
try 2 help wiring; err "did you mean wirings?"
try 2 predict pre layers=2 layers=3; err "'layers=2' and 'layers=3' set the same key"; no_out
try 2 predict layers=2 layers=2 --wirings pre,post; err "set the same key"
try 2 predict pre --wirings post,pre,post; err "names 'post' twice"; no_out
try 0 help eval; out "windows or examples at a time"; grep -q "lines at a time" out && bad "another verb's batch"
try 0 help translate; out "lines at a time"; out "one of RUN/checkpoints/"
try 0 help measure; grep -q bf16 out && bad "a type that measure refuses"
try 2 measure pre --max-memory 1; err "--max-memory is 1 byte; one run needs"
try 2 measure pre --max-memory 1.5K; err "--max-memory is 1.5 KiB"
try 2 wirings --json=yes; err "takes no value"
try 2 wirings -x; err "-x"
try 2 wirings --depths 3; err "no option --depths"
try 2 version pre; err "takes no operand"
try 2 report; err "needs a FILE"
try 2 bench --products 64x64NT; err "'64x64NT' is no product"; no_out
try 2 bench --products 64x64x64TT; err "NN, NT or TN"; no_out
try 0 bench --quick --products 8x9x10NN,40x30x20TN; out "gemm f32 8x9x10 NN"; out "gemm f32 40x30x20 TN"
try 0 bench --quick --gemm --threads 1 --products 40x50x60NT; out "best of oneDNN"; out "gemm 40x50x60 NT matmul"
try 2 report a.json -o; err "--out needs a value"
try 2 wirings -- --json; err "--json"
if "$bin" predict --help >/dev/null 2>&1; then
    try 2 predict; err "needs a SPEC"; no_out
    try 2 predict layers=3; err "SPEC comes first"
    try 2 predict pre widht=3; err "did you mean width?"; no_out
    try 2 predict pre layers=two; err "layers"; err "two"; no_out
    try 2 predict pre layers=-1; err "layers"; no_out
    try 2 predict pre seeds=3; err "write --seeds=3"
    try 2 predict pre --layers 3; err "write it as layers=VALUE"
    try 2 predict prre; err "pre"; no_out
    try 2 predict pre post; err "unexpected word 'post'"
    try 2 predict pre --depths 1,x; err "1,x"
    try 2 predict pre --depths 0; err "outside"
    try 2 predict pre --seeds; err "needs a value"
    try 2 predict pre --json --csv; err "exclude"
    try 2 predict 'x = x + F(gelo(x))'; err "gelu"; no_out
    try 2 predict 'x = x + F(N(x)' ; err ")"; no_out
    # what papers write, and what a newcomer types
    try 2 predict 'x_{l+1} = x_l + F(x_l)'; err "column 3"; err "no TeX"
    try 2 predict 'x_l = x_l + F(x)'; err "the stream is x in every layer"
    try 2 predict 'x = LayerNorm(x + F(x))'; err "did you mean 'LN'?"
    try 2 predict 'x = x + FFN(x)'; err "did you mean 'F' or 'M'?"
    try 2 predict 'x = x + G(x)'; err "sonde help formula"
    try 2 predict 'x = x + 2F(x)'; err "column 10"; err "'*'"
    try 2 predict 'x := x + F(x)'; err "found ':='"
    try 2 predict 'x = x + αF(x)'; err "character 'α'; expected"
    try 2 predict 'x = x/(l - 2) + F(x)' layers=4; err "division by a constant that is 0"
    try 2 predict 'layer: x = x + F(x)'; err "write 'each: ...'"
    try 2 predict 'x + F(N(x))'; err "says what it assigns"
    try 2 predict pre block='W(relu(W(u, k)), d)'; err "a block knows its input u"
    try 2 predict pre --depht 3; err "did you mean --depths?"
    try 0 predict resnet-v2; out "16 x 3 x 32 x 32, iid N(0,1)"; out "gratio"
    try 0 predict gpt2; out "tokcos"; out "4 x 64"
    try 0 predict keel layers=6 heads=4 width=64 vocab=300 position=none tie=true; err "as if the head were drawn apart"
    try 0 predict gpt2 --tokens 128 --metrics gtok,gdev,entropy; out "4 x 128"; out "gdev"
    try 0 predict llama3-8b --json; json; out '"tokcos"'
    try 0 predict b2t layers=24 heads=4 vocab=1000 position=learned context=64; out "tokcos"
    try 0 predict pre arch=encoder-decoder layers=2 heads=2; out "encoder.in.x"
    try 2 predict gpt2 --tokens 2000; err "learned positions end at context, 1024"
    try 0 predict 'y = LN(x + F(x))' layers=2; out "idle-layers"; out "y is forgotten"
    try 0 predict 'x = log(x) + F(x)' layers=2; out "theory-lost at layers.0.x"
    grep -q '^ in.x  *1.000  *0$' out || bad "a gradient at in.x, where theory was lost on the way"
    try 2 predict pre --input-scale 0; err "outside"
    try 0 predict --wirings pre,post layers=2; out "post"
    # ---- results
    try 0 predict pre layers=4 width=32; out "layer"; out "F(N(x))"
    try 0 predict pre layers=4 width=32 --json; json; out '"sonde.predict/1"'; no_err
    try 0 --json predict pre layers=4 width=32; json
    try 0 predict --json -- pre layers=4; json
    try 0 predict pre layers=4 --csv; out "run,depth,name,layer,metric,mean"
    try 0 predict residual layers=3000 width=32 --json; json; out '"predicted_log10"'
    try 0 predict 'each: x = N(x + F(x))' layers=3 --json; json
    try 0 predict residual --depths 1..8 --json; json; out '"runs"'
    try 0 predict pre layers=3 --quiet -o res; [ -s err ] && bad "--quiet, yet notes on stderr"
    for f in result.json result.csv spec.yaml report.html; do [ -s "res/$f" ] || bad "res/$f is missing"; done
    try 0 report res; out "res/report.html"
    try 0 report res/result.json -o one.html; [ -s one.html ] || bad "one.html is missing"
    try 0 predict res/spec.yaml --json; json
    # a bad word in a file is exit 3, the same word on the command line 2
    printf 'model:\n  wiring: pre\n  layers: 3\n  widht: 8\n' >bad.yaml
    try 3 predict bad.yaml; err "width"; no_out
    printf 'model:\n  wiring: pre\n  layers: 3\n' >good.yaml
    try 0 predict good.yaml --json; json
    try 2 predict good.yaml widht=8; err "width"
    try 3 predict missing.yaml
    # nothing that is read is written over, nothing is lost for want of a folder
    mkdir own && cp good.yaml own/spec.yaml
    try 2 predict own/spec.yaml -o own; err "write over"
    cmp -s good.yaml own/spec.yaml || bad "the spec was written over"
    try 0 predict res/spec.yaml -o res --quiet # its own resolved form
    try 2 predict res/spec.yaml layers=5 -o res; err "write over"
    cp res/result.json r.html
    try 2 report r.html -o r.html; err "is read"
    try 2 run good.yaml --input good.yaml --output own; err "is a folder"
    try 2 measure pre --depths 1,,2; err "empty item"; no_out
    try 3 predict pre -o good.yaml/res; err "good.yaml/res"; no_out
    mkdir -p late/result.json # seen only when it is written
    try 3 predict pre layers=3 -o late; err "late/result.json"; out "layer"
    [ -e late/spec.yaml ] && bad "half a result was written"
    # a disk that fills up behind the first file leaves yesterday's folder
    try 0 predict pre layers=2 -o full; cp -r full yesterday
    n=$((n + 1)) what="predict with a full disk"
    (trap '' XFSZ; ulimit -f 4; "$bin" predict post layers=3 -o full >/dev/null 2>err </dev/null); rc=$?
    [ $rc = 3 ] || bad "exit $rc, not 3"
    diff -r full yesterday >/dev/null || bad "new files stand beside old ones"
    # what has no end or no writer
    try 3 predict /dev/zero; err "device"
    mkfifo pipe
    n=$((n + 1)) what="SIGINT while waiting for a pipe"
    timeout -s INT --preserve-status 1 "$bin" predict ./pipe >out 2>err </dev/null
    rc=$?
    [ $rc = 130 ] || bad "exit $rc, not 130"
    (cat good.yaml >pipe) & # a pipe is read once and whole
    try 0 predict ./pipe
    n=$((n + 1)) what="a piped spec in several wirings"
    (cat good.yaml >pipe) &
    timeout 60 "$bin" predict ./pipe --wirings pre,post --csv >out 2>err </dev/null || bad "exit $?"
    grep -q '^pre,' out && grep -q '^post,' out || bad "a wiring is missing"
    "$bin" predict pre layers=3 -o shut --json >&- 2>err </dev/null; rc=$? what="predict with stdout closed"
    [ $rc = 3 ] || bad "exit $rc, not 3"
    for f in result.json spec.yaml; do [ -s shut/$f ] && ! grep -q "standard output" shut/$f || bad "shut/$f"; done
fi

if "$bin" measure --help >/dev/null 2>&1 && command -v timeout >/dev/null; then
    n=$((n + 1)) what="SIGINT while measuring"
    # one signal: timeout sends it to the group as well, and a second one ends the command at once
    "$bin" measure residual layers=600 width=512 --seeds 500 >out 2>err </dev/null &
    pid=$!
    sleep 1
    kill -INT $pid
    wait $pid
    rc=$?
    [ $rc = 130 ] || bad "exit $rc, not 130"
    err "interrupted"
    n=$((n + 1)) what="SIGINT after some seeds"
    "$bin" measure residual layers=2 width=16 --batch 8 --seeds 1000000 -o some >out 2>err </dev/null &
    pid=$!
    sleep 2
    kill -INT $pid
    wait $pid
    rc=$?
    [ $rc = 130 ] || bad "exit $rc, not 130"
    err "interrupted"
    err "of 1000000 seeds"
    [ -s some/result.json ] || bad "the seeds that were finished are lost"
    n=$((n + 1)) what="SIGINT in a demo"
    for t in 1 4 16; do # a busy machine needs longer for the first number
        "$bin" demo -o cut >out 2>err </dev/null &
        pid=$!
        sleep $t
        kill -INT $pid
        wait $pid
        rc=$?
        [ -s cut/result.json ] && break
    done
    [ $rc = 130 ] || bad "exit $rc, not 130"
    err "Interrupted in panel"
    grep -q 'closed form' cut/result.json || bad "what was finished is lost"
fi

# ---- the README's example is what the program prints (all but sparklines and the table's measured digits)
if [ -f "$readme" ] && "$bin" measure --help >/dev/null 2>&1; then
    try 0 measure 'each: x = x + F(N(x))' layers=64 width=256
    tr '\n' ' ' <out | sed 's/  */ /g' >plain
    sed -n '/^    \$ sonde measure /,/^      \.\.\./p' "$readme" | sed -e 1d -e 's/ · /, /g' -e 's/ ·$/,/' -e 's/  */ /g' -e 's/^ *//' |
        grep -v -e '[▁→]' -e '^[0-9]' -e '^in.x' -e '^\.\.\.' -e '^$' >readme_lines
    [ "$(wc -l <readme_lines)" -ge 8 ] || bad "the README's example was not found"
    while read -r line; do grep -qF -- "$line" plain || bad "the README says: $line"; done <readme_lines
fi

# ---- bad files
try 3 report nowhere; err "nowhere"; no_out
echo '{"schema": "other/1"}' >other.json
try 3 report other.json; err "other/1"
echo 'not json' >broken.json
try 3 report broken.json; err "broken.json:1"
if [ -e /dev/full ]; then
    n=$((n + 1)) what="sonde wirings >/dev/full"
    "$bin" wirings >/dev/full 2>err; rc=$?
    [ $rc = 3 ] || bad "exit $rc, not 3"
    err "standard output: No space left on device"
    n=$((n + 1)) what="sonde version >/dev/full" # fits the buffer: fails at the end
    "$bin" version >/dev/full 2>err; rc=$?
    [ $rc = 3 ] || bad "exit $rc, not 3"
    err "standard output: No space left on device"
fi

# ---- colours and characters: none when stdout is no terminal, none with NO_COLOR or --no-color on one
esc=$(printf '\033')
try 0 wirings pre; grep -q "$esc" out && bad "colours on a pipe"
try 0 wirings --json; json; out '"deepnorm"'
try 0 models --json; json
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then # it exists and there are pseudo-terminals
    on_terminal() { TERM=xterm LC_ALL=C.UTF-8 script -qec "$1" /dev/null </dev/null >out 2>err; what="$1 on a terminal"; n=$((n + 1)); }
    on_terminal "'$bin' wirings pre"; grep -q "$esc" out || bad "no colours on a terminal"
    on_terminal "'$bin' wirings pre --no-color"; grep -q "$esc" out && bad "colours with --no-color"
    on_terminal "env NO_COLOR=1 '$bin' wirings pre"; grep -q "$esc" out && bad "colours with NO_COLOR"
    on_terminal "env TERM=dumb '$bin' wirings pre"; grep -q "$esc" out && bad "colours on a dumb terminal"
fi

# ---- every example of the help of the quick verbs works
for verb in wirings models predict describe help version; do
    "$bin" "$verb" --help >/dev/null 2>&1 || continue
    "$bin" "$verb" --help | sed -n '/^Examples/,$s/^  sonde //p' >examples
    [ -s examples ] || { what="sonde $verb --help"; bad "no examples"; }
    while IFS= read -r line; do
        n=$((n + 1)) what="example: sonde $line"
        eval "\"\$bin\" $line" >out 2>err </dev/null || bad "fails"
    done <examples
done

# ---- run: what --taps may name
g=$golden/mlp-stem-head
run="run $g/spec.yaml --weights $g/weights.safetensors --input $g/input.safetensors --output o.safetensors"
try 2 $run --taps layers.0.F.oot; err "did you mean 'layers.0.F.out'?"
try 2 $run --taps grad.layers.0.F.out; err "--backward"
try 2 $run --backward --taps grad.layers.0.F.oot; err "did you mean 'grad.layers.0.F.out'?"
try 0 $run --dtype bf16; no_out
try 0 $run --round-weights bf16; no_out
try 2 $run --round-weights f32; err "bf16|f16"
# whose fault it is: a file's own formula or tensors (3), or a word on the command line (2)
printf 'model:\n  family: mlp\n  wiring: "each: x = x + G(x)"\n' >bad.yaml
try 3 run bad.yaml layers=3 --input $g/input.safetensors --output o.safetensors; err "'G'"
try 2 run bad.yaml "wiring=each: x = H(x)" --input $g/input.safetensors --output o.safetensors; err "'H'"
try 3 run pre layers=2 width=12 inputs=7 outputs=5 --weights $g/input.safetensors --input $g/input.safetensors --output o.safetensors; err "missing"
try 3 run pre layers=2 width=12 inputs=8 --input $g/input.safetensors --output o.safetensors; err "[6, 7]"
try 2 $run --max-memory 1; err "--max-memory"
# what is read is not written over; a folder that is missing is said at once; numbers are floating point
cp $g/input.safetensors in.st
own="run $g/spec.yaml --weights $g/weights.safetensors --input in.st"
ln -s in.st alias.st
try 2 $own --output in.st; err "in.st that is read"
try 2 $own --output alias.st; err "that is read"
cmp -s $g/input.safetensors in.st || bad "the input was written over"
try 3 $own --output none/o.st; err "none"
try 3 $own --output /dev/full; err "/dev/full"
st() { printf "\\$(printf %03o ${#1})\0\0\0\0\0\0\0%s" "$1"; head -c "$2" /dev/zero; }
st '{"input":{"dtype":"U8","shape":[6,7],"data_offsets":[0,42]}}' 42 >u8.st
try 3 run $g/spec.yaml --input u8.st --output o.safetensors; err "input is u8"
st '{"input":1,"input":2}' 0 >twice.st
try 3 run $g/spec.yaml --input twice.st --output o.safetensors; err "duplicate"
st '{"a\\u001b[31m":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}' 0 >esc.st
try 3 run $g/spec.yaml --input $g/input.safetensors --weights esc.st --output o.safetensors; err "missing"
# an input that is cut off while another one is waited for
mkfifo wpipe
n=$((n + 1)) what="an input cut short while read"
"$bin" run $g/spec.yaml --input in.st --weights wpipe --output cut.st >out 2>err </dev/null &
pid=$!
sleep 1
: >in.st
cat $g/weights.safetensors >wpipe
wait $pid
rc=$?
[ $rc = 3 ] || bad "exit $rc, not 3"
err "cut short"
[ -e cut.st ] && bad "a result of an input that was cut short"
try 0 $run --backward --taps grad.head.weight,layers.0.F.out,no.such.*

# ---- run: a Transformer's inputs
bad=$golden/invalid tf=$golden/embed-untied
try 3 run $bad/base.yaml --input $bad/input-token-range.safetensors --output o.safetensors; err "of this vocab go from 0 to 10"
try 3 run $bad/base.yaml --input $bad/input-too-long.safetensors --output o.safetensors; err "input-too-long.safetensors: tokens"
try 3 run $bad/base.yaml --input $bad/input-empty.safetensors --output o.safetensors; err "unrelated"
try 0 run $tf/spec.yaml --weights $tf/weights.safetensors --input $tf/input.safetensors --output o.safetensors --backward --taps grad.logits

# Transformers: drawn tokens, a text, token numbers; what they have no use for
gpt="pre heads=2 width=32 layers=2 vocab=256 position=rope --batch 2 --tokens 8 --seeds 1"
printf 'a text of some thirty characters' >text
try 0 measure $gpt --full; out "tokcos"; out "entropy"; out "gdev"; out "layers.1.A.out"
try 0 measure $gpt --data text --loss; out "2 x 8 tokens of text"
try 0 measure $gpt --loss --last-token --depths 1,2
try 0 measure heads=2 --wirings pre,post width=32 layers=1 --batch 2 --tokens 8 --seeds 1; out "post"
try 3 measure $gpt --data missing; err "missing"
try 2 measure $gpt --data text --tokens 40 --loss; err "text: has 32 tokens; a sequence needs 41"
try 2 measure $gpt --data text --labels text; err "--labels is for rows of the mlp family"
try 2 measure $gpt --last-token; err "--last-token needs --loss"
try 2 measure $gpt --cos 0.5; err "--cos is for the mlp family"
try 2 measure pre heads=2 layers=1 --data text; err "give vocab=NUMBER"
try 2 measure pre heads=2 width=32 layers=2 vocab=100 position=rope --data text --tokens 8 --threads 2; err "the vocabulary has 0 to 99" # on any thread
try 2 measure pre heads=2 vocab=10; err "position: must be said"
try 0 measure pre heads=1 width=64 layers=1 vocab=16777216 position=none --no-params --batch 1 --tokens 2
out "seed 0, f32"; err "one seed, since a net of 1.07e+09 parameters"

# a formula of one's own beside others: it is among them, under a short name; notes are said once
own="layer: h = N(x + A(x)); x = N(x + h + M(h))"
try 0 predict "$own" --wirings pre,post heads=2 width=32 layers=2 vocab=16 position=rope; out "your formula  layer: h"; out "post"
err "your formula, pre, post: logits"
[ "$(grep -c logits err)" = 1 ] || bad "a note is said more than once"
try 0 predict pre --wirings "post,$own,$own + 0" heads=2 width=32 layers=2; out "your formula 2"; err "pre is not among --wirings"
try 0 predict bert-base layers=1 vocab=16; err "BERT base:"
try 0 predict bert-base wiring=pre layers=1 vocab=16; err "pre:"

echo "cli_test: $n runs, $fails failures"
[ $fails = 0 ]
