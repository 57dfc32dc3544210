#!/bin/sh
# The slow checks: sanitizers over all tests, every fuzz target for a moment, mutants.
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-20}

for preset in asan tsan; do
    tools/build.sh $preset
    ctest --preset $preset
done
tools/build.sh fuzz
for target in build/fuzz/*_fuzz; do
    [ -x "$target" ] || continue
    name=$(basename "$target" _fuzz)
    mkdir -p "build/fuzz/corpus/$name"
    "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 "build/fuzz/corpus/$name" "tests/fuzz/$name" \
        >"build/fuzz/$name.log" 2>&1 || { tail -40 "build/fuzz/$name.log" >&2; exit 1; }
    echo "fuzz: $name: ok"
done
tools/mutants.sh
