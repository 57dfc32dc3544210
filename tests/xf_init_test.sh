#!/bin/sh
# Transformers at their start against reference values of another program, every layer: six models with sonde's own seeds,
# and where a Python has numpy with the program's very draws, when every number has to come out.
command -v python3 >/dev/null || exit 77
bench="${SONDE_SOURCE_DIR:?}/bench/xf_init.py"
table="$SONDE_SOURCE_DIR/tests/golden/xf-init.csv"
python3 "$bench" "${SONDE_BIN:?}" "$table" --seeds 5 || exit 1
for python in python3 /usr/bin/python3; do
  "$python" -c 'import numpy' 2>/dev/null || continue
  "$python" "$bench" "$SONDE_BIN" "$table" --draws reference --share 1
  exit
done
echo "no numpy: not held against the reference's own draws"
