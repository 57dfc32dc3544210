#!/bin/sh
# The main job on built-in input: less than a minute, ends in a report.
set -eu
cd "$(dirname "$0")/.."
sonde=build/release/sonde
[ -x $sonde ] || { echo "demo: the command is not built yet" >&2; exit 1; }
if $sonde demo --help >/dev/null 2>&1; then
    exec $sonde demo --quick
fi
exec $sonde version
