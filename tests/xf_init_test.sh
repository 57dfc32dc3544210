#!/bin/sh
# Transformers at their start against reference values of another program: five models, every layer, 414 numbers.
command -v python3 >/dev/null || exit 77
exec python3 "${SONDE_SOURCE_DIR:?}/bench/xf_init.py" "${SONDE_BIN:?}" "$SONDE_SOURCE_DIR/tests/golden/xf-init.csv" --seeds 5
