#!/bin/sh
# Configures (once) and builds one preset: tools/build.sh PRESET [ninja arguments]
set -eu
cd "$(dirname "$0")/.."
preset=$1
shift
log=build/$preset.log
mkdir -p build
if [ ! -f "build/$preset/build.ninja" ]; then
    cmake --preset "$preset" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
fi
if ! cmake --build --preset "$preset" "$@" >"$log" 2>&1; then
    # The last lines alone would show other files' progress: only what went wrong.
    grep -v '^\[[0-9]*/[0-9]*\] ' "$log" >&2 || cat "$log" >&2
    echo "build: preset $preset failed (whole log: $log)" >&2
    exit 1
fi
