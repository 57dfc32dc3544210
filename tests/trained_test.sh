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
try 0 train pre layers=1 width=32 heads=2 --data text --steps 6 --batch 4 --tokens 32 --dtype bf16 -o lm16 -q
try 0 eval lm16; out "computed in     f32 with products of bf16 operands"
try 0 eval lm16 --json; json 'd["dtype"] == "bf16"'; grep '"nats"' out >as_trained
try 0 eval lm16 --dtype bf16 --json; grep '"nats"' out | cmp -s - as_trained || bad "eval is not in the training's bf16"
try 0 eval lm16 --dtype f32 --json; grep '"nats"' out | cmp -s - as_trained && bad "--dtype f32 changes nothing"
json 'd["dtype"] == "f32"'
try 0 train pre layers=1 width=32 heads=2 --data text --steps 2 --batch 4 --tokens 32 --dtype f16 -o half -q
try 0 eval half; err "trained in f16 with all results rounded; computed in f32 here"
try 0 eval half --dtype f32; out "nats per target"; grep -q f16 err && bad "a note on what was asked for"
try 2 train pre layers=1 width=32 --data text --ema 1; err "--ema: 1 is outside 0 to 0.999999999"
try 2 eval lm --stride 33; err "a stride of 33 is beyond the window of 32"
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

# three looks in a row make a dead branch: verdicts of a resumed run are those of the whole one
dead='layers=1 width=32 heads=2 --data text --batch 4 --tokens 32 --warmup 0 --lr 1e-9'
try 0 train 'x = x + F(1e-9*N(x))' $dead --steps 4 -o whole -q; out "dead-branch"
try 0 train 'x = x + F(1e-9*N(x))' $dead --steps 2 -o parts -q; grep -q dead-branch out && bad "two looks are enough"
try 0 train --resume parts --steps 4 -q; out "dead-branch"; out "layers.0, step 1"

# a run is used from anywhere, and its data may move
mkdir -p away moved; cd away || exit 1
try 0 eval ../lm --json; json 'd["nats"] < d["uniform_entropy"]'
try 0 train --resume ../lm --steps 62 -q
grep -q "^  path: text$" ../lm/spec.yaml || bad "the text of the path is lost"
grep -qF "  folder: \"$tmp\"" ../lm/spec.yaml || bad "the folder of the path is not kept"
mv ../text ../moved/text
try 3 eval ../lm; err "--data PATH stands in"; err "text: it was read from $tmp and is not there any more"
try 3 train --resume ../lm --steps 64 -q; err "it was read from $tmp"
try 0 eval ../lm --data-folder ../moved -q
try 0 train --resume ../lm --steps 64 --data ../moved/text -q
try 0 eval ../lm -q
echo "another text, from which nothing was learned" >other
try 3 train --resume ../lm --steps 66 --data other; err "not the data that the run was trained on"
try 3 train --resume ../lm --steps 66 --data nowhere; err "nowhere"
cp -r ../lm ../moved/text .; mv ../moved/text ../text # both copied to another place
sed -i 's/^  folder:.*/  folder: gone/; s/^  path:.*/  path: text/' lm/checkpoints/64/spec.yaml
try 3 eval lm -q; err "spec.yaml: "; err "were saved"
sed -i '/^  "files": {/,/^  },/d; /^  "crc32c"/d; s/^\(  "best_step": .*\),$/\1/' lm/checkpoints/64/state.json # as before there were sums
try 0 eval lm -q
cd ..
try 0 train --resume lm --steps 66 --data text -q
try 0 generate lm --prompt "ΩΣ the Ω" --tokens 5; err "'Ω' (U+03A9), 'Σ' (U+03A3)"
try 0 generate lm --prompt "the" --tokens 5; grep -q "does not know" err && bad "a note without a reason"
try 0 generate lm --prompt "the" --tokens 30 --samples 40 --temperature 50 --json; grep -q '\\ufffd\|�' out && bad "<unk> was drawn"

# ---- a byte that changed, a file that was cut: whoever reads it says so
newest=$(ls lm/checkpoints | sort -n | tail -1)
turn() { # FILE: the byte in its middle
    python3 - "$1" <<'END'
import sys
raw = bytearray(open(sys.argv[1], "rb").read())
raw[len(raw) // 2] ^= 16
open(sys.argv[1], "wb").write(raw)
END
}
for file in model.safetensors tokenizer.json spec.yaml state.json optimizer.safetensors; do
    rm -rf hurt; cp -r lm hurt
    turn "hurt/checkpoints/$newest/$file"
    try 3 train --resume hurt --steps 80 -q; err "hurt/checkpoints/$newest/$file: "
    case $file in optimizer*) continue ;; esac
    try 3 eval hurt; err "hurt/checkpoints/$newest/$file: "
    try 3 generate hurt --prompt a; err "hurt/checkpoints/$newest/$file: "
    try 3 measure hurt; err "hurt/checkpoints/$newest/$file: "
    try 3 run hurt --input in.st --output a.st; err "hurt/checkpoints/$newest/$file: "
    : >"hurt/checkpoints/$newest/$file"
    try 3 train --resume hurt --steps 80 -q; err "hurt/checkpoints/$newest/$file: "
    try 3 eval hurt; err "hurt/checkpoints/$newest/$file: "
done

rm -rf hurt; cp -r lm hurt; rm "hurt/checkpoints/$newest/optimizer.safetensors"
try 0 eval hurt
try 3 train --resume hurt --steps 80 -q; err "hurt/checkpoints/$newest/optimizer.safetensors"

# ---- a trained model's own numbers
try 0 measure lm --csv; cp out first
try 0 measure lm; out "weights"; out "tokens of text"; grep -q theory out && bad "theory beside a trained model"
newest=$(ls lm/checkpoints | sort -n | tail -1)
try 0 measure "lm/checkpoints/$newest/model.safetensors" --csv; cmp -s first out || bad "a checkpoint's file is another model"
try 0 measure lm --data text --loss --seeds 1 --json; json 'd["values"][-1]["name"] == "loss" or any(v["name"] == "loss" for v in d["values"])'
try 2 measure lm --wirings pre,post; err "--wirings is for nets that are drawn"
try 2 measure lm --depths 1,2; err "one net is measured"
try 2 measure pre --eval; err "--eval is for a trained model"
try 3 measure lm layers=3; err "layers.2"
# the very numbers of the net that was drawn: no step has moved the weights
try 0 train pre layers=2 width=32 heads=2 --data text --steps 1 --lr 0 --tokens 32 -o still -q
sed '/^train:/,$d' still/spec.yaml >bare.yaml
try 0 measure bare.yaml --seeds 1 --csv; cut -d, -f1-6 out >drawn
try 0 measure bare.yaml --weights still/checkpoints/1/model.safetensors --seeds 1 --csv; cut -d, -f1-6 out >mapped
cmp -s drawn mapped || bad "weights from a file are another net than the same ones drawn"
[ "$(wc -l <drawn)" -gt 300 ] || bad "hardly anything was measured"
try 0 measure bare.yaml --weights "lm/checkpoints/$newest/model.safetensors" --seeds 1 --json
python3 - "lm/checkpoints/$newest/model.safetensors" <<'END' || bad "the weights of the file are not those that were measured"
import json, struct, sys
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head = json.loads(raw[8:8 + n])
params = {p["name"]: p for p in json.load(open("out"))["params"]}
for name in ["layers.0.A.q.weight", "layers.1.M.down.weight", "out.N1.weight"]:
    a, b = head[name]["data_offsets"]
    w = struct.unpack("<%df" % ((b - a) // 4), raw[8 + n + a:8 + n + b])
    rms = (sum(x * x for x in w) / len(w)) ** 0.5
    got = params[name].get("metrics", params[name])["wrms"]
    assert abs(got / rms - 1) < 1e-6, (name, got, rms)
END
# and run takes the same folder
python3 - <<'END' || bad "cannot write an input"
import json, struct
h = json.dumps({"tokens": {"dtype": "I64", "shape": [1, 4], "data_offsets": [0, 32]}}).encode()
open("in.st", "wb").write(struct.pack("<Q", len(h)) + h + struct.pack("<4q", 1, 2, 3, 4))
END
try 0 run lm --input in.st --output a.st; err "weights: lm/checkpoints/"
try 0 run "lm/checkpoints/$newest/spec.yaml" --weights "lm/checkpoints/$newest/model.safetensors" --input in.st --output b.st -q
cmp -s a.st b.st || bad "run of a folder is not that of its files"
try 2 run pre --checkpoint best --input in.st --output a.st; err "is for a run's folder"
try 3 predict lm; err "lm is a folder; predict takes a spec"
cp "lm/checkpoints/$newest/model.safetensors" alone.safetensors
try 3 eval alone.safetensors; err "beside them is no spec.yaml"; err "SPEC --weights alone.safetensors"

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
try 2 train --resume lm --steps 30; err "stands at step 66 and steps is 30"
for word in "optimizer lion" "seed 5" "dtype f64"; do
    try 2 train --resume lm --steps 70 --$word; err "--$word: the run was begun with"; err "leave --${word% *} out"
done
grep -q lion lm/spec.yaml && bad "refused, yet in the spec"
try 0 train --resume lm/ -o ./lm --seed 00 --dtype f32 -q
try 2 train --resume lm -o other -q; err "leave -o out"
try 2 train pre layers=1 width=32 --data text --steps 1 -o lm/ -q; err "-o lm holds an earlier run's checkpoints; --resume lm goes on"
try 0 eval lm/; out "lm/checkpoints/66/"; grep -q "//" out && bad "two slashes"
mkdir -p empty
try 3 eval empty/; err "empty holds no checkpoint of a run (no folder empty/checkpoints)"
try 0 train --resume lm -q

# ---- what would change nothing is refused where it was said, and where a file says it, is for other runs
idle() { # MESSAGE ARGUMENTS
    message=$1; shift
    try 2 train pre layers=1 width=32 --steps 1 --batch 2 -q "$@"; err "$message"
}
awk -v OFS=, 'BEGIN { print "a,b,class"; for (i = 0; i < 99; i++) print i % 7, i % 5, (i % 7 > 3) ? "yes" : "no" }' >idle.csv
idle "--scale-every has no effect with dtype f32, only with f16" --data text --scale-every 5
idle "--scale-every has no effect with loss-scale fixed, only with dynamic" --data text --dtype f16 --loss-scale 8 --scale-every 5
idle "--loss-scale has no effect with dtype bf16, only with f16" --data text --loss-scale 8 --dtype bf16
idle "--augment has no effect with data-kind text, only with images" --data text --augment
idle "--columns has no effect with data-kind text, only with pairs" --data text --columns 1,2
idle "--classes has no effect with data-kind text, only with table" --data text --classes a,b
idle "--label-column has no effect with data-kind text, only with table" --data text --label-column 1
idle "--mask-share has no effect with objective lm, only with mlm" --data text --mask-share 0.2
idle "--bpe-vocab has no effect with tokenizer chars, only with bpe" --data text --bpe-vocab 300
idle "--beta2 has no effect with optimizer sgd, only with adamw/adam/lion" --data text --optimizer sgd --beta2 0.9
idle "--opt-eps has no effect with optimizer lion" --data text --optimizer lion --opt-eps 1e-6
idle "--lr-end has no effect with schedule constant" --data text --schedule constant --lr-end 0.5
idle "--decay-share has no effect with schedule cosine, only with wsd" --data text --decay-share 0.5
idle "--decay has no effect with weight-decay 0" --data text --optimizer sgd --decay all
head -c 4000 /dev/zero >numbers.bin
for word in chars bpe; do
    try 3 train pre layers=1 width=32 vocab=256 position=rope --steps 1 --batch 2 --data numbers.bin --tokens 8 --tokenizer $word
    err "$word is learned from text, and numbers.bin holds the numbers of tokens"
done
try 0 train pre layers=1 width=32 --steps 1 --batch 2 -q --data text --eval-every 0 --eval-batches 3 # of the validation at the end
idle "--valid-share has no effect with valid-data given" --data text --valid-data text --valid-share 0.1
idle "--test-share has no effect with test-data given" --data text --test-data text --test-share 0.1
idle "--save-every has no effect without -o" --data text --save-every 1
idle "--data-folder has no effect with data-path $tmp/text, only with relative" --data "$tmp/text" --data-folder .
try 0 train pre layers=1 width=32 --steps 1 --batch 2 -q --data "$tmp/text" --data-folder . --valid-data text # of which one is
try 0 train pre layers=1 width=32 --steps 1 --batch 2 -q --data "$tmp/text" -o absolute
try 2 eval absolute --data-folder .; err "--data-folder has no effect with data-path $tmp/text, only with relative"
python3 - <<'END'
import os, struct
os.makedirs("images", exist_ok=True)
for kind, n in ("train", 90), ("t10k", 30):
    open(f"images/{kind}-images-idx3-ubyte", "wb").write(struct.pack(">4I", 0x803, n, 4, 4) + bytes(i * 7 % 251 for i in range(16 * n)))
    open(f"images/{kind}-labels-idx1-ubyte", "wb").write(struct.pack(">2I", 0x801, n) + bytes(i % 3 for i in range(n)))
END
idle "--test-share has no effect with test-data t10k-*, only with none" --data images --test-share 0.2
try 3 train pre layers=1 width=32 --steps 1 --data images --valid-data text; err "text: images have no validation or test file of their own"
rm images/t10k-*
mv images/train-labels-idx1-ubyte labels; head -c 12 labels >images/train-labels-idx1-ubyte
try 3 train pre layers=1 width=32 --steps 1 --data images; err "sonde train: $PWD/images/train-labels-idx1-ubyte: sizes"
mv labels images/train-labels-idx1-ubyte; : >blank
try 3 train pre layers=1 width=32 --steps 1 --data blank; err "sonde train: $PWD/blank: empty"
try 0 train pre layers=1 width=32 --steps 1 --batch 2 --data images --test-share 0.2; err "from the data: inputs=16, outputs=3"; err "18 for the test"
for verb in "train pre --steps 1" "measure pre vocab=8 position=rope"; do
    try 3 $verb family=transformer layers=1 width=32 --data images -q; err "family=transformer takes tokens, images need family=convnet or mlp"
done
try 3 train resnet-v2 layers=1 --data idle.csv --steps 1 -q; err "family convnet learns from images, and idle.csv is a table, which needs family=mlp"
try 3 train resnet-v2 layers=1 --data text --steps 1 -q; err "family convnet learns from images with a class (a text needs family=transformer): "
try 3 train pre objective=class --data text --steps 1 -q; err "family mlp learns from rows with a class"
idle "objective: class needs family mlp or convnet, found transformer" heads=2 objective=class --data idle.csv
idle "--tokens has no effect with objective class" --data idle.csv --tokens 8
idle "--tokenizer has no effect with data-kind table" --data idle.csv --tokenizer bytes
idle "--classes: 'red' is name 1 and 3; every class needs one of its own" --data idle.csv --classes red,green,red
idle "--classes: name 2 is empty" --data idle.csv --classes red,
idle "found the option -q" --data -q
try 3 train pre --data text --data-folder nowhere -q; err "--data-folder: nowhere is no folder"
cat >idle.yaml <<'END'
model: {wiring: pre, layers: 1, width: 32}
train: {steps: 1, batch: 2, tokens: 16, scale_every: 5, beta2: 0.9, optimizer: sgd}
data: {path: text, augment: true, columns: "1,2", mask: 0.2, bpe_vocab: 300}
END
try 0 train idle.yaml -q -o idle
try 0 train --resume idle --steps 2 -q
try 2 train --resume idle --steps 3 --scale-every 9 -q; err "--scale-every has no effect with dtype f32"
try 2 eval lm --split valid --data text; err "--split has no effect with --data text"
try 2 eval lm --data-folder . --data text; err "--data-folder has no effect with --data text"
try 3 eval lm --data-folder nowhere; err "--data-folder: nowhere is no folder"
try 2 generate lm --prompt a --temperature 0 --top-k 4; err "--top-k has no effect with temperature 0"
try 2 describe pre inputs=4 outputs=3 --plan --tokens 8; err "--tokens has no effect with objective class"
try 2 describe pre inputs=4 outputs=3 --plan --image-size 8; err "--image-size has no effect with family mlp, only with convnet"

# ---- what is read is never written over, whichever setting names it and whoever writes there
mkdir -p over
for file in metrics.jsonl events.out.tfevents.0.sonde panels.csv result.csv; do cp text over/$file; done
for file in metrics.jsonl events.out.tfevents.0.sonde panels.csv result.csv; do
    idle "-o over would write over over/$file, which is read" --data over/$file -o over/
done
for option in valid-data test-data tokenizer; do
    idle "-o over would write over over/metrics.jsonl, which is read" --data text --$option over/metrics.jsonl -o over
done
printf 'model: {wiring: pre, layers: 1, width: 32}\ntrain: {steps: 1}\ndata: {path: metrics.jsonl, folder: over}\n' >over.yaml
try 2 train over.yaml -q -o over; err "would write over over/metrics.jsonl, which is read"
cmp -s text over/metrics.jsonl || bad "data was written over"

# ---- a family that was said stays: rows are no text
printf 'model: {wiring: pre, family: mlp, layers: 1, width: 32}\n' >rows.yaml
for spec in rows.yaml mlp "pre family=mlp"; do
    try 3 train $spec layers=1 --data text --steps 1 -q
    err "family mlp learns from rows with a class (a text needs family=transformer): "; err "is not a number"
done
try 0 train rows.yaml --data idle.csv --steps 1 -q
try 0 train rows.yaml family=transformer --data text --steps 1 --batch 2 --tokens 16 -q

# ---- a context that is longer than what was trained on
try 0 train pre layers=1 width=32 heads=2 context=64 position=learned --data text --steps 20 --batch 4 --tokens 16 -o brief -q
try 0 eval brief; out "16 tokens, 8 apart"; err "16 tokens at a time, as the model was trained; its context is 64 (--tokens 64)"
try 0 eval brief --json; json 'd["window"] == 16 and d["trained_window"] == 16'; cp out one
try 0 eval brief --tokens 64 --json; err "positions behind them were never learned"; json 'd["window"] == 64'
python3 -c 'import json
assert json.load(open("one"))["nats"] < json.load(open("out"))["nats"]' || bad "positions that were never learned are no worse"
try 2 eval brief --tokens 65; err "learned positions end at context, 64"
try 0 generate brief --prompt "the cat" --tokens 40; err "16 tokens at a time, as the model was trained"; err "read again"
try 0 generate brief --prompt "the cat" --tokens 40 --context 64; err "never learned"; grep -q "read again" err && bad "--context is not taken"
try 0 generate brief --prompt "the" --tokens 5; grep -q "at a time" err && bad "a note without a reason"
try 0 eval lm; grep -q "at a time" err && bad "a note where context and training agree"

# ---- computing again: another setting after a resume, the same weights; describe --plan reads the run's own settings
steady="--batch 4 --tokens 32 --schedule constant --warmup 0 -q"
try 0 train pre layers=2 width=32 heads=2 dropout=0.1 --data text --steps 6 $steady --recompute layers -o again
try 0 train --resume again --steps 12 --recompute norms -q
try 0 train pre layers=2 width=32 heads=2 dropout=0.1 --data text --steps 12 $steady -o kept
cmp -s again/checkpoints/12/model.safetensors kept/checkpoints/12/model.safetensors || bad "other weights"
try 0 describe again/spec.yaml --plan; out "4 sequences of 32 tokens"; out "* norms"
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
try 0 measure mt --checkpoint 150; out " encoder 0 "; out " decoder 0 " # not two rows of one name
printf 'ab c3\nab c7\r\nab c10\n' >source
printf 'AB C3\nAB C7\nAB C10\n' >reference
try 0 translate mt --source source --reference reference --beams 3
[ "$(wc -l <out)" = 3 ] || bad "not a line for a line"
err "BLEU = "; err "tok:13a"
in=source; try 0 translate mt --json --beams 1; in=
json 'd["schema"] == "sonde.translate/1" and len(d["lines"]) == 3 and all(l["score"] <= 0 for l in d["lines"])'
rm -rf hurt; cp -r mt hurt; turn "hurt/checkpoints/150/model.safetensors"
try 3 translate hurt --source source; err "hurt/checkpoints/150/model.safetensors: damaged, or changed after it was saved"
try 0 train pre layers=1 width=32 heads=2 arch=encoder-decoder context=40 position=learned --data pairs.tsv --tokenizer chars --steps 2 \
    --batch 16 --tokens 8 -o far -q
printf 'ab c3 ab c3\nab\n' >longer
try 0 translate far --source longer --json; err "1 of 2 lines have more than the 8 tokens that the model was trained on"
json 'all(len(l["text"]) <= 8 for l in d["lines"])'
try 0 translate far --source source --tokens 30; err "positions behind them were never learned"
try 2 translate far --source source --tokens 41; err "learned positions end at context, 40"
printf 'AB\n' >short
try 3 translate mt --source source --reference short; err "as many are needed"
try 2 generate mt --prompt a; err "translate"
try 0 eval mt --json --threads 1; cp out one; try 0 eval mt --json --threads 3; cmp -s out one || bad "eval depends on threads"
try 0 eval mt --json; json 'd["nats"] < d["uniform_entropy"] and d["accuracy"] > 0.5'
try 0 eval mt; out "given those before it in the reference"
printf 'ab cß\n' >strange
try 0 translate mt --source strange; err "'ß' (U+00DF)"

# ---- what an objective or a vocabulary lacks follows from the data; what does not fit is said in one go
small="layers=1 width=32 heads=2 --steps 1 --batch 2 --tokens 16"
try 0 train pre arch=encoder objective=mlm $small --data text; err "vocab=26, position=learned, context=16"
try 0 train pre objective=mlm layers=1 width=32 --steps 1 --batch 2 --tokens 16 --data text; err "vocab=26, position=learned, context=16"
try 0 train pre arch=encoder-decoder objective=seq2seq $small --data pairs.tsv --tokenizer chars -q
try 0 train pre vocab=40 $small --data text; err "from the data: position=learned, context=16"
try 0 train pre vocab=40 position=learned $small --data text; err "from the data: context=16"
try 0 train pre vocab=40 position=rope $small --data text; grep -q "from the data" err && bad "what was said is completed"
python3 -c 'import struct; open("to299.bin", "wb").write(struct.pack("<2000H", *[i * 7 % 300 for i in range(2000)]))'
try 0 train pre $small --data to299.bin; err "from the data: vocab=300, position=learned, context=16"
try 0 train pre family=mlp objective=class --steps 1 --data idle.csv; err "from the data: inputs=2, outputs=2"
try 2 train pre vocab=10 position=learned context=8 $small --data text -q
err "text: the vocabulary has 25 tokens, the model's 10; a sequence has 16 tokens, learned positions end at context, 8; give vocab=25 context=16"
try 2 train pre family=mlp inputs=3 outputs=1 --steps 1 --data idle.csv -q
err "idle.csv: rows have 2 features, the model reads 3; there are 2 classes, the model has 1; give inputs=2 outputs=2"
try 2 describe pre vocab=40; err "position: must be said where there is a vocab (40)"; err "learned positions need context=NUMBER too"
try 2 measure pre layers=1 width=32 objective=mlm; err "objective: mlm needs a vocab"

# ---- an encoder, classes
try 0 train pre layers=1 width=32 heads=2 arch=encoder --data text --mask-share 0.2 --steps 10 --batch 4 --tokens 32 -o mlm -q
try 2 eval mlm --stride 8; err "--stride has no effect with objective mlm, only with lm"
try 2 generate mlm --prompt a; err "an encoder"
try 0 train bert-base layers=1 width=32 heads=2 vocab=100 --data text --steps 2 --batch 2 --tokens 16 --json -q
json 'd["label"] == "BERT base"' # a preset with a formula of its own has a name
try 0 train bert-base "wiring=in: x = N(x); each: x = N(x + F(x)) + 0*x" layers=1 width=32 heads=2 vocab=100 --data text --steps 2 --batch 2 --tokens 16 --json -q
json 'd["label"] == "your formula"'
try 0 eval mlm --json; json 'd["targets"] > 0 and 0 <= d["accuracy"] <= 1'
try 0 eval mlm; out "accuracy"; out "perplexity"
awk -v OFS=, 'BEGIN { print "a,b,class"; for (i = 0; i < 200; i++) print i % 7, i % 5, (i % 7 > 3) }' >table.csv
try 0 train pre layers=2 width=16 family=mlp --data table.csv --steps 40 --batch 16 -o class -q
try 0 eval class --data table.csv; out "accuracy"; out "confusion"
try 2 eval class --tokens 8; err "--tokens has no effect with objective class"
try 2 eval class --stride 8; err "--stride has no effect with objective class, only with lm"
awk -v OFS=, 'BEGIN { print "a,b,class"; for (i = 0; i < 200; i++) print i % 7, i % 5, (i % 7 > 3 ? "yes" : "no") }' >words.csv
try 0 train pre layers=2 width=16 family=mlp --data words.csv --steps 40 --batch 16 -o words -q
try 0 eval words --data words.csv; out "          no"; out "         yes"; cp out one
try 0 eval class --data table.csv; grep accuracy one >a; grep accuracy out >b; cmp -s a b || bad "words are other classes than their numbers"
sed -n '2,6p' words.csv >few.csv # classes, and what rows are normalised by, are those of training
try 0 eval words --data few.csv --json; json 'd["classes"] == ["no", "yes"] and d["targets"] == 5 and d["confusion"][1] == [0, 1]'
printf 'a,b,class\n0,0,no\n' >first.csv # of one row alone the moments say nothing
printf 'a,b,class\n6,4,yes\n' >last.csv
try 0 eval words --data first.csv --json; json 'd["accuracy"] == 1'
try 0 eval words --data last.csv --json; json 'd["accuracy"] == 1'
echo "1,2,perhaps" >>few.csv
try 3 eval words --data few.csv; err "'perhaps' is none of the 2 classes (no, ...)"
# batch norm: by the batch as in training, or by its running statistics
try 0 train post norm=batch layers=2 width=16 family=mlp --data table.csv --steps 40 --batch 16 -o batch -q
try 0 measure batch --csv; cp out one; try 0 measure batch; out "by the batch"
try 0 measure batch --eval --csv; cmp -s one out && bad "--eval changes nothing"
try 0 measure batch --eval; out "by running statistics"
try 0 eval class --data table.csv --json; json 'sum(map(sum, d["confusion"])) == d["targets"] == 200'
json 'd["accuracy"] == (d["confusion"][0][0] + d["confusion"][1][1]) / 200'
try 2 generate class --prompt a; err "family mlp" # as translate of a decoder

[ $fails = 0 ] && echo "trained_test: all well" || echo "trained_test: $fails failures"
[ $fails = 0 ]
