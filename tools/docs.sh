#!/bin/sh
# Writes the generated part of the documentation: help texts of every verb.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build/docs
sonde=build/release/sonde
$sonde --help >build/docs/sonde.txt
$sonde --help | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p' | while read -r verb; do
    $sonde "$verb" --help >"build/docs/sonde-$verb.txt" 2>/dev/null || rm -f "build/docs/sonde-$verb.txt"
done
echo "docs: $(find build/docs -name '*.txt' | wc -l) pages in build/docs"
