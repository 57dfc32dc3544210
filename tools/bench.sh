#!/bin/sh
# Kernels and steps against this machine's own limits.
set -eu
cd "$(dirname "$0")/.."
exec build/release/sonde bench
