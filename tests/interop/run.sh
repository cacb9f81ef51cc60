#!/bin/sh
# Exchanges recordings with the original package, release 0.4.2, installed into a virtual environment.
#
#   tests/interop/run.sh VENV_DIRECTORY [INTEROP_PROGRAM]
#
# Without INTEROP_PROGRAM the example `interop` is built.
set -eu
venv=${1:?usage: run.sh VENV_DIRECTORY [INTEROP_PROGRAM]}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
program=${2:-}
if [ -z "$program" ]; then
    cd "$here/../.."
    cargo build-for-tests
    program=${CARGO_TARGET_DIR:-target}/debug/examples/interop
fi
if ! "$venv/bin/python" -c 'import resource_tracker; assert resource_tracker.__version__ == "0.4.2"' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check resource-tracker==0.4.2
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$venv/bin/python" "$here/original.py" "$program" "$work"
