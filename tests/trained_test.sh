#!/bin/sh
# A model is trained for some steps, then evaluated, gone on with and translated by: what the three verbs print, that they are
# reproducible, which checkpoint they take, and what they refuse. SONDE_BIN names the binary.
bin=${SONDE_BIN:?SONDE_BIN is not set}
here=$(cd "$(dirname "$0")" && pwd)
patience=300
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$here/try.sh"
json() {
    command -v python3 >/dev/null || return 0
    python3 -c 'import json, sys
d = json.load(open("out"))
assert eval(sys.argv[1]), sys.argv[1]' "$1" 2>err || bad "JSON is not so: $1"
}

# ---- a language model
i=0
while [ $i -lt 300 ]; do
    echo "the cat sat on the mat and the dog sat on the log $i"
    i=$((i + 1))
done >text
try 0 train pre layers=2 width=32 heads=2 --data text --steps 60 --save-every 20 --batch 4 --tokens 32 -o lm -q
try 0 eval lm; out "nats per target"; out "bits per byte"; out "32 tokens, 16 apart"
try 0 eval lm --json; json 'd["schema"] == "sonde.eval/1" and 0 < d["nats"] < d["uniform_entropy"]'
json 'abs(d["bits_per_byte"] - d["nats"] * d["targets"] / d["bytes"] / 0.6931471805599453) < 1e-12'
try 0 eval lm --data text --stride 8 --json; json 'd["split"] == "all of it" and d["stride"] == 8'
json 'd["targets"] == d["bytes"] == len(open("text").read()) - 1'
printf 'ΩΩΩ the cat sat on the mat and the dog sat' >strange # Ω: two bytes, unknown
try 0 eval lm --data strange --json; json 'd["unknown"] == 2 and d["targets"] == 41 and d["bytes"] == 43'
try 0 eval lm --data strange; out "2 of the targets are characters"
newest=$(ls lm/checkpoints | sort -n | tail -1)
try 0 eval "lm/checkpoints/$newest" --json; cp out one
try 0 eval lm --checkpoint "$newest" --json
sed 's/"weights".*//' one >a; sed 's/"weights".*//' out >b; cmp -s a b || bad "a run's newest checkpoint is another one"
try 0 eval lm --checkpoint best -q
try 0 eval "lm/checkpoints/$newest/spec.yaml" --weights "lm/checkpoints/$newest/model.safetensors" \
    --tokenizer "lm/checkpoints/$newest/tokenizer.json" -q; out "nats per target"
try 3 eval lm --checkpoint 7; err "is missing"
try 2 eval lm --checkpoint worst; err "must be best or a step"
try 2 eval pre layers=2; err "needs weights"

try 0 generate lm --prompt "the cat" --tokens 30 --temperature 0 -q; cp out one
case $(cat one) in "the cat"*) ;; *) bad "the prompt does not stand in front" ;; esac
try 0 generate lm --prompt "the cat" --tokens 30 --temperature 0 --threads 1 -q; cmp -s one out || bad "another text"
printf 'the cat' >prompt
in=prompt; try 0 generate lm --prompt - --tokens 30 --top-k 1 -q; in=
cmp -s one out || bad "top-k 1 is not greedy"
try 0 generate lm --prompt "the " --tokens 20 --samples 3 --seed 5 --json; cp out one
json 'len(d["samples"]) == 3 and d["tokens"] == 60 and len(set(d["samples"])) > 1'
try 0 generate lm --prompt "the " --tokens 20 --samples 3 --seed 5 --json
sed '/seconds/d' one >a; sed '/seconds/d' out >b; cmp -s a b || bad "the same seed gives another text"
try 0 generate lm --prompt "the " --tokens 100; err "a second"; err "read again"
try 2 generate lm; err "--prompt"
try 2 generate lm --prompt "the" --context 33; err "learned positions end at context, 32"; [ -s out ] && bad "a prompt before the refusal"
try 2 train --resume lm --lr 1; err "would change nothing"; grep -q "lr: 1$" lm/spec.yaml && bad "a rate no step was made with"
try 2 train --resume lm --steps 30; err "stands at step 60 and steps is 30"
try 3 train --resume lm --steps 70 --optimizer lion; err "optimizer is adamw"; grep -q lion lm/spec.yaml && bad "refused, yet in the spec"
try 0 train --resume lm -q
try 2 generate lm --prompt ""; err "the value is empty"
try 2 translate lm; err "needs an encoder-decoder"

# ---- a translation: words to their capitals
i=0
while [ $i -lt 400 ]; do
    printf 'ab c%d\tAB C%d\n' $((i % 10)) $((i % 10))
    i=$((i + 1))
done >pairs.tsv
try 0 train pre layers=1 width=32 heads=2 arch=encoder-decoder --data pairs.tsv --tokenizer chars --steps 150 \
    --batch 16 --tokens 24 -o mt -q
printf 'ab c3\nab c7\r\nab c10\n' >source
printf 'AB C3\nAB C7\nAB C10\n' >reference
try 0 translate mt --source source --reference reference --beams 3
[ "$(wc -l <out)" = 3 ] || bad "not a line for a line"
err "BLEU = "; err "tok:13a"
in=source; try 0 translate mt --json --beams 1; in=
json 'd["schema"] == "sonde.translate/1" and len(d["lines"]) == 3 and all(l["score"] <= 0 for l in d["lines"])'
printf 'AB\n' >short
try 3 translate mt --source source --reference short; err "as many are needed"
try 2 generate mt --prompt a; err "translate"
try 0 eval mt --json; json 'd["nats"] < d["uniform_entropy"]'

# ---- an encoder, classes
try 0 train pre layers=1 width=32 heads=2 arch=encoder --data text --steps 10 --batch 4 --tokens 32 -o mlm -q
try 3 generate mlm --prompt a; err "an encoder"
try 0 eval mlm --json; json 'd["targets"] > 0'
awk -v OFS=, 'BEGIN { print "a,b,class"; for (i = 0; i < 200; i++) print i % 7, i % 5, (i % 7 > 3) }' >table.csv
try 0 train pre layers=2 width=16 family=mlp --data table.csv --steps 40 --batch 16 -o class -q
try 0 eval class --data table.csv; out "accuracy"; out "confusion"
try 0 eval class --data table.csv --json; json 'sum(map(sum, d["confusion"])) == d["targets"] == 200'
json 'd["accuracy"] == (d["confusion"][0][0] + d["confusion"][1][1]) / 200'
try 3 generate class --prompt a; err "family mlp"

[ $fails = 0 ] && echo "trained_test: all well" || echo "trained_test: $fails failures"
[ $fails = 0 ]
