#!/bin/sh
# The quick checks, in the order in which they are cheap. Each says one line; the first failure ends the run.
set -eu
cd "$(dirname "$0")/.."

step() {
    name=$1
    shift
    start=$(date +%s)
    "$@" || { echo "check: $name: FAILED" >&2; exit 1; }
    echo "check: $name: ok ($(($(date +%s) - start)) s)"
}

format() {
    # Headers and .def tables are laid out by hand, for reading.
    bad=$(git ls-files -co --exclude-standard -- 'src/*.c' 'tests/*.c' 'examples/*.c' 'bench/*.c' |
        while read -r f; do
            [ ! -f "$f" ] || clang-format --dry-run -Werror "$f" >/dev/null 2>&1 || echo "$f"
        done)
    [ -z "$bad" ] || {
        echo "not formatted; clang-format -i would do it:"
        echo "$bad"
        return 1
    }
}

step format format
step arrows python3 tools/check_arrows.py
step words python3 tools/check_words.py
step tables python3 tools/check_tables.py
step "list of mutants" python3 tools/mutants.py --stale
step "build with gcc" tools/build.sh dev
step "build with clang" tools/build.sh clang
step tests ctest --test-dir build/dev --output-on-failure
