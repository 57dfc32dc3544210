#!/bin/sh
# The kernels against this machine's own limits, text on its way to batches, then the whole tool: the signal probe against
# PyTorch (where Debian's python3-torch is installed), start-up, describe, predict, GPT-2 against PyTorch; all in one run,
# and with SONDE_BENCH_LARGE=1 an 8B model and
# what computing again costs GPT-2. docs/bench.md has figures and how to read them.
set -eu
cd "$(dirname "$0")/.."
sonde=build/release/sonde
$sonde bench
cmake --build build/release --target data_bench recompute_bench >/dev/null
build/release/data_bench .
if [ "${SONDE_BENCH_LARGE:-}" ]; then build/release/recompute_bench .; fi
python3 bench/probe.py $sonde --rounds "${SONDE_BENCH_ROUNDS:-5}"
python3 bench/models.py $sonde --rounds "${SONDE_BENCH_ROUNDS:-5}" ${SONDE_BENCH_LARGE:+--large}
