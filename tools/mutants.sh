#!/bin/sh
# Plants every fault of tools/mutants.txt in a copy of the tree and requires the named tests to fail.
# A fault that survives is a missing test; a text that is not found (or found twice) is a stale list. Arguments: only
# entries whose file or test contains one of these words.
cd "$(dirname "$0")/.." && exec python3 tools/mutants.py "$@"
