#!/bin/sh
# U70: flags that delete checks for NaN are refused at compile time. A NaN that is there is found: train_test
# (a_nan_is_not_learned), train_runs_test.py (planted in a weight).
src=${SONDE_SOURCE_DIR:?SONDE_SOURCE_DIR is not set}
cc=${CC:-cc}
command -v "$cc" >/dev/null || exit 77
err=$(mktemp) || exit 1
trap 'rm -f "$err"' EXIT
compiles() { "$cc" -std=c17 -D_GNU_SOURCE "$@" -fsyntax-only -I"$src/include" -I"$src/src" "$src/src/base/num.c" 2>"$err"; }
fails=0
bad() {
    fails=$((fails + 1))
    echo "FAIL $1"
    head -3 "$err"
}
for flags in -O2 "-O3 -fno-math-errno" "-ffast-math -fno-finite-math-only -fno-fast-math"; do
    compiles $flags || bad "$flags is refused"
done
for flags in -ffast-math -Ofast -ffinite-math-only "-O2 -ffast-math"; do
    compiles $flags && bad "$flags is taken"
    grep -q "build without them" "$err" || bad "$flags: not told why"
done
exit $fails
