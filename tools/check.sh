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
    git ls-files -co --exclude-standard -- 'src/*.[ch]' 'include/*.h' 'tests/*.[ch]' 'examples/*.c' 'bench/*.[ch]' |
        while read -r f; do
            # Tables are laid out by hand: they are listed in tools/unformatted.
            [ ! -f "$f" ] || grep -qx "$f" tools/unformatted || echo "$f"
        done | xargs clang-format --dry-run -Werror
}

step format format
step arrows python3 tools/check_arrows.py
step tables python3 tools/check_tables.py
step "build with gcc" tools/build.sh dev
step "build with clang" tools/build.sh clang
step tests ctest --test-dir build/dev --output-on-failure
