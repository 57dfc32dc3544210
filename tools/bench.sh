#!/bin/sh
# The kernels against this machine's own limits, then the whole tool: the signal probe against PyTorch (where Debian's
# python3-torch is installed), start-up, describe, predict; all in one run. docs/bench.md has figures and how to read them.
set -eu
cd "$(dirname "$0")/.."
sonde=build/release/sonde
$sonde bench
python3 bench/probe.py $sonde --rounds "${SONDE_BENCH_ROUNDS:-5}"
