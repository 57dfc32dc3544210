#!/bin/sh
# Makes files to train on, all free to use: what sonde train reads as --data.
#   austen.txt          two novels by Jane Austen (public domain; in the repository)
#   verses-en-es.tsv    31 000 aligned verses, English and Spanish (public domain; in the repository)
#   help-en-de.tsv      30 000 sentences of LibreOffice's help, English and German (MPL-2.0; Debian packages
#                       libreoffice-help-en-us and -de, downloaded and unpacked, not installed)
#   fashion-mnist/      60 000 + 10 000 images of clothes (MIT; Debian package dataset-fashion-mnist)
# Usage: tools/make_data.sh [DIR] [austen|verses|help|images ...]     (default: out/data, all of them)
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:-$root/out/data}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- austen verses help images
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Files appear whole or not at all.
put() {
    cat >"$work/part"
    mv "$work/part" "$dir/$1"
    echo "$dir/$1: $(wc -l <"$dir/$1") lines, $(wc -c <"$dir/$1") bytes"
}

# unpack PACKAGE...: into $work/root, without what they depend on
unpack() {
    (
        cd "$work"
        chmod 755 . # apt's own user writes here
        apt-get -q download "$@" >apt.log 2>&1 || {
            cat apt.log >&2
            echo "make_data.sh: cannot download $*; is there a network, and has apt-get update been run?" >&2
            exit 1
        }
        for deb in ./*.deb; do
            dpkg -x "$deb" root
            rm "$deb"
        done
    )
}

make_austen() {
    put austen.txt <"$root/data/austen/austen.txt"
}

make_verses() {
    xz -dc "$root/data/verses/bible-en-es.tsv.xz" | cut -f 2,3 | put verses-en-es.tsv
}

make_help() {
    unpack libreoffice-help-en-us libreoffice-help-de
    help=$work/root/usr/share/libreoffice/help
    python3 "$root/tools/align_help.py" "$help/en-US/text" "$help/de/text" >"$work/pairs"
    put help-en-de.tsv <"$work/pairs"
}

make_images() {
    from=/usr/share/datasets/fashion-mnist
    if [ ! -e $from/train-images-idx3-ubyte.gz ]; then
        unpack dataset-fashion-mnist
        from=$work/root$from
    fi
    mkdir -p "$dir/fashion-mnist"
    for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do
        cp "$from/$f-ubyte.gz" "$work/part"
        mv "$work/part" "$dir/fashion-mnist/$f-ubyte.gz"
    done
    echo "$dir/fashion-mnist: 60000 images to train on, 10000 for the test"
}

for what in "$@"; do
    case $what in
    austen | verses | help | images) "make_$what" ;;
    *)
        echo "make_data.sh: '$what' is none of austen, verses, help, images" >&2
        exit 2
        ;;
    esac
done
