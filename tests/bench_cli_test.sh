#!/bin/sh
# sonde bench as people and scripts meet it: the shape of its JSON, a saved result beside a new one (slower, faster, missing,
# without a number, of another machine, damaged), and a stand-in for PyTorch. SONDE_BIN names the binary. Needs python3.
bin=${SONDE_BIN:?SONDE_BIN is not set}
here=$(cd "$(dirname "$0")" && pwd)
command -v python3 >/dev/null || exit 77
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
. "$here/try.sh"
no_out() { [ ! -s out ] || bad "stdout is not empty"; }
json() {
    python3 -c 'import json, sys
def no(x): raise ValueError("not JSON: " + x)
d = json.load(open("out"), parse_constant=no)
rows = d["rows"]
assert eval(sys.argv[1]), sys.argv[1]' "$1" 2>err || bad "JSON is not so: $1"
}
# as base.json with spreads in which any machine has room, but for what the words of Python do to d and its rows
alter() {
    python3 -c 'import json, sys
d = json.load(open("base.json"))
rows = d["rows"]
for r in rows: r.update(rate_lo=0, rate_hi=1e12, share_lo=0, share_hi=1e12)
exec(sys.argv[1])
json.dump(d, open("altered.json", "w"))' "$1"
}
few="--quick --threads 1 --only layer*fwd*256,normals,mlp"

# ---- what it prints
try 0 bench $few --json -q
json 'd["schema"] == "sonde.bench/1" and d["quick"] and d["cpu"] and d["version"] and d["isa"] and d["nonfinite"] == 0'
json '[r["group"] for r in rows] == ["norm", "draw", "draw", "step"]'
json 'all(r["rate_lo"] <= r["rate"] <= r["rate_hi"] and r["threads"] == 1 for r in rows)'
json 'rows[0]["bound"] == "copy" and rows[0]["share_lo"] <= rows[0]["share"] <= rows[0]["share_hi"]'
json 'rows[1]["bound"] is None and rows[1]["share"] is None and "mib" not in rows[1] and "ratio" not in rows[1]'
json 'rows[3]["rows"] == 64 and abs(rows[3]["per_second"] * rows[3]["seconds"] / 64 - 1) < 1e-9 and rows[3]["mib"] > 1'
cp out base.json
try 0 bench $few -q; out "norm f32 layer fwd 256x256"; out "training step"; out "mlp 8x256 batch 64"
try 0 bench --quick --time-limit 1ms --threads 1 --json -q; json 'len(rows) == 1'
try 2 bench --only nrom; err "'nrom'"; err "groups are limit"; no_out
try 2 bench --only norm --gemm; err "--only"; no_out
try 2 bench --gemm --against torch; err "rival of its own"; no_out
try 2 bench --cpu-time --quick; err "--threads 1"; no_out
try 0 bench $few --cpu-time --json -q; json 'd["cpu_time"] and rows[0]["rate"] > 0 and rows[3]["seconds"] > 0'
try 2 bench --tolerance 0.1; err "--baseline"; no_out
try 2 bench --against jax; err "not one of torch"; no_out

# ---- beside a saved result
against="bench $few --baseline altered.json -q"
alter 'rows[0]["share"], rows[0]["share_lo"], rows[0]["share_hi"] = 1e3, 0.9e3, 1.1e3'
try 1 $against; out "slower"; out "1 slower and"
try 1 $against --json; json 'd["baseline"]["slower"] == 1 and d["baseline"]["rows"][0]["verdict"] == "slower"'
json 'd["baseline"]["rows"][0]["by"] == "share" and d["baseline"]["rows"][0]["ratio"] < 0.1 and len(rows) == 4'
try 0 $against --tolerance 1; out "0 slower and"
alter 'for r in rows: r["share"] = r["share_lo"] = r["share_hi"] = None; r["rate"] = r["rate_lo"] = r["rate_hi"] = 1e-9'
try 0 $against; out "faster"; out "0 slower and"
alter 'rows[0].update(rate=None, share=None, share_lo=None, share_hi=None)'
try 0 $against --json; json 'd["baseline"]["rows"][0]["verdict"] == "unknown" and d["baseline"]["rows"][0]["ratio"] is None'
alter 'rows[0]["share"] = rows[0]["share_lo"] = rows[0]["share_hi"] = 1e-9; rows[1]["name"] = "f32 gone"; rows.append(dict(rows[0], threads=7))'
try 0 $against --json; json 'd["baseline"]["missing"] == 2 and d["baseline"]["new"] == 1 and d["baseline"]["faster"] >= 1'
try 0 $against; out "2 of its rows were not measured now"
# of another version: noted; of another machine, or damaged: refused before anything runs
alter 'd["version"] = "0.0.0"; d["quick"] = False
for r in rows: r["share"] = r["rate"] = None'
try 0 bench $few --baseline altered.json; err "of version 0.0.0"; err "without --quick"
alter 'd["cpu"] = "Z80"'
try 3 $against; err "'Z80'"; err "two machines"; no_out
alter 'del rows[2]["rate"]'
try 3 $against; err "altered.json: row 3 (draw"; err "no rate"; no_out
printf '{"schema": "sonde.bench/1",' >altered.json
try 3 $against; err "altered.json: line 1"; no_out
try 3 bench $few --baseline nowhere.json; err "nowhere.json"; no_out
try 3 bench $few --baseline /dev/null; err "/dev/null"; no_out

# ---- a rival: what comes with the command is replaced by a script that has no PyTorch
stand_in() {
    mkdir -p share
    cat >share/torch_rounds.py
}
export SONDE_SHARE=$tmp/share
try 2 bench $few --against torch; err "torch_rounds.py"; err "SONDE_SHARE"; no_out
echo 'print("{\"error\": \"python3 has no PyTorch\"}")' | stand_in
try 2 bench $few --against torch; err "--against torch: torch_rounds.py: python3 has no PyTorch"; no_out
stand_in <<'END'
import json, sys
assert sys.argv[1] == "1"
print(json.dumps({"name": "stand-in 7", "setting": "none"}), flush=True)
for line in sys.stdin:
    open("heard", "a").write(line)
    print(json.dumps({"seconds": 2.0, "mib": 9.0} if line.startswith("round") else {}), flush=True)
END
try 0 bench $few --against torch --json -q
json 'd["rival"] == "stand-in 7" and d["rival_setting"] == "none" and [r["group"] for r in rows] == ["norm", "step"]'
json 'all(abs(r["ratio"] * r["rival"] / r["rate"] - 1) < 1e-9 and r["ratio_lo"] <= r["ratio"] <= r["ratio_hi"] for r in rows)'
json 'abs(rows[0]["rival"] * 2.0 * 1e9 / (2 * 4 * 256 * 256) - 1) < 1e-9 and rows[1]["rival_mib"] == 9'
grep -qx 'case layernorm-fwd 256 256 0' heard || bad "it was not asked for the norm"
[ "$(grep -c '^case' heard)" = 2 ] || bad "it was asked for more than two cases"
[ "$(grep -c '^round' heard)" = 8 ] || bad "it had other rounds than five and three"
try 0 bench $few --against torch -q; out "beside stand-in 7"; out "times theirs"; out "times as fast"
try 2 bench --only draw --threads 1 --against torch; err "stand-in 7 has none of these rows"; no_out
stand_in <<'END'
import json, sys
print(json.dumps({"name": "stand-in"}), flush=True)
sys.stdin.readline()
END
try 3 bench $few --against torch; err "stand-in: it"; no_out
stand_in <<'END'
import json, sys
print(json.dumps({"name": "stand-in"}), flush=True)
for line in sys.stdin: print("{}", flush=True)
END
try 0 bench $few --against torch --json -q; json 'd["nonfinite"] == 2 and rows[0]["ratio"] is None and rows[0]["rate"] > 0'

echo "bench_cli_test: $n runs, $fails failures"
[ $fails = 0 ]
