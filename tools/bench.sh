#!/bin/sh
# Kernels and steps against this machine's own limits.
set -eu
cd "$(dirname "$0")/.."
sonde=build/release/sonde
if ! $sonde bench --help >/dev/null 2>&1; then
    echo "bench: this version has no benchmarks yet"
    exit 0
fi
exec $sonde bench
