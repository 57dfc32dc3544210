#!/bin/sh
# Installs to a folder of its own (DESTDIR and PREFIX), then builds and runs every example from outside the source
# tree: with pkg-config, with CMake (shared and static), one as C++ too, and its headers with a C++ compiler and one by one.
set -eu
src=${SONDE_SOURCE_DIR:?} build=${SONDE_BUILD_DIR:?}
grep -q '^SONDE_SANITIZE:STRING=.' "$build/CMakeCache.txt" && exit 77 # sanitized libraries need sanitized programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

DESTDIR=$work/stage cmake --install "$build" --prefix /opt/sonde >install.log || { cat install.log; exit 1; }
root=$work/stage/opt/sonde
pc=$(find "$root" -name sonde.pc)
export PKG_CONFIG_PATH="${pc%/sonde.pc}"
lib=$(find "$root" -name libsonde.so)
export LD_LIBRARY_PATH="${lib%/libsonde.so}"

[ -L "$lib" ] || { echo "libsonde.so is not a link to its version"; exit 1; }
# Only the public names may be visible.
nm -D --defined-only "$lib" | awk '{print $3}' | grep -v '^sonde_' >foreign || true
[ ! -s foreign ] || { echo "names that should be hidden:"; head foreign; exit 1; }
# Nothing heavy at start-up.
if readelf -d "$lib" | grep -E 'NEEDED.*(dnnl|blas)'; then echo "kernels' libraries must be loaded on demand"; exit 1; fi

for example in "$src"/examples/*.c; do
    name=$(basename "$example" .c)
    # shellcheck disable=SC2046
    cc -Wall -Wextra -Werror "$example" $(pkg-config --cflags --libs sonde) -o "$name"
    "./$name" >"$name.out" || { echo "$name failed (pkg-config)"; cat "$name.out"; exit 1; }
    [ -s "$name.out" ] || { echo "$name printed nothing"; exit 1; }
done

if ! { cmake -S "$src/examples" -B cm -DCMAKE_PREFIX_PATH="$root" -DCMAKE_BUILD_TYPE=Release && cmake --build cm; } \
    >cm.log 2>&1; then
    cat cm.log
    exit 1
fi
for example in "$src"/examples/*.c; do
    name=$(basename "$example" .c)
    for variant in "$name" "${name}_static"; do
        "cm/$variant" >cm.out || { echo "$variant failed (CMake)"; exit 1; }
        cmp cm.out "$name.out" || { echo "$variant prints something else than with pkg-config"; exit 1; }
    done
done

for header in "$root"/include/sonde/*.h; do
    name=$(basename "$header")
    echo "#include <sonde/$name>" >one.c
    # shellcheck disable=SC2046
    cc -std=c99 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags sonde) -fsyntax-only one.c
    if command -v c++ >/dev/null; then
        # shellcheck disable=SC2046
        c++ -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags sonde) -x c++ -fsyntax-only one.c
    fi
done

# The same program in another type: what it learns is about the same, its weights are not.
mkdir half
(cd half && ../train f16 >../half.out) || { echo "examples/train.c fails in f16"; cat half.out; exit 1; }
if cmp -s half/ring/checkpoints/300/model.safetensors ring/checkpoints/300/model.safetensors; then
    echo "examples/train.c takes no notice of the type"
    exit 1
fi

# A program in C++ as well: the one that trains.
if command -v c++ >/dev/null; then
    # shellcheck disable=SC2046
    c++ -Wall -Wextra -Wpedantic -Werror -x c++ "$src/examples/train.c" $(pkg-config --cflags --libs sonde) -o train_cxx
    ./train_cxx >cxx.out || { echo "examples/train.c failed as C++"; cat cxx.out; exit 1; }
    cmp cxx.out train.out || { echo "examples/train.c prints something else as C++"; exit 1; }
fi
# What a program has trained, the command reads.
if [ -x "$root/bin/sonde" ]; then
    "$root/bin/sonde" measure ring --seeds 1 -q >measured || { echo "the command cannot read what examples/train.c saved"; exit 1; }
fi

if [ -x "$root/bin/sonde" ]; then
    "$root/bin/sonde" --version >/dev/null || { echo "the installed command does not start"; exit 1; }
fi
