#!/bin/sh
# Installs what the build needs and a fresh Debian 12 lacks. Says nothing and changes nothing when all is there.
set -eu

# package:what proves that it is there (a command, or a file, where * may stand for one folder)
needs='
gcc:gcc
g++:g++
libc6-dev:/usr/include/stdio.h
make:make
cmake:cmake
ninja-build:ninja
pkg-config:pkg-config
python3:python3
clang:clang
clang-format:clang-format
libdnnl2:/usr/lib/*/libdnnl.so.2
libjansson-dev:/usr/include/jansson.h
libyaml-dev:/usr/include/yaml.h
librandom123-dev:/usr/include/Random123/philox.h
zlib1g-dev:/usr/include/zlib.h
libcmocka-dev:/usr/include/cmocka.h
libjs-dygraphs:/usr/share/javascript/dygraphs/dygraph.min.js
locales:/usr/share/i18n/charmaps
dataset-fashion-mnist:/usr/share/datasets/fashion-mnist
'

missing=
set -f # patterns stay as they are until they are looked up
for row in $needs; do
    set +f
    package=${row%%:*} proof=${row#*:}
    case $proof in
    /*) # shellcheck disable=SC2086 # the pattern is meant to be expanded
        ls $proof >/dev/null 2>&1 || missing="$missing $package" ;;
    *) command -v "$proof" >/dev/null 2>&1 || missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup: missing$missing; this is not Debian, install their equivalents by hand" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "setup: missing$missing; neither root nor sudo: run as root: apt-get install$missing" >&2
        exit 1
    fi
    sudo=sudo
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
install() {
    $sudo apt-get -qq update || return 1
    # shellcheck disable=SC2086 # one word per package
    $sudo apt-get -qq -y -o Dpkg::Use-Pty=0 install --no-install-recommends $missing
}
if ! said=$(install </dev/null 2>&1); then
    echo "$said" >&2
    echo "setup: apt-get could not install$missing" >&2
    exit 1
fi
