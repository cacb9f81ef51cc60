#!/bin/sh
# Runs flows on Metaflow 2.19, offline, with the installed wheel; then tests their cards in a browser.
#
#   RESOURCE_TRACKER_WHEEL=FILE python/metaflow_tests/run.sh [VENV_DIR]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/target/metaflow}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$venv/bin/python" ] || python3.11 -m venv "$venv"
wheel=${RESOURCE_TRACKER_WHEEL:?must name the wheel, which \`make wheel\` builds}
"$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
"$venv/bin/python" -m pip install --quiet "metaflow==2.19.*" pytest
# The original package, which must be able to read artifacts of this one.
export RESOURCE_TRACKER_ORIGINAL=$venv/original/bin/python
[ -x "$RESOURCE_TRACKER_ORIGINAL" ] || python3.11 -m venv "$venv/original"
"$RESOURCE_TRACKER_ORIGINAL" -m pip install --quiet resource-tracker==0.4.2
# For the requests of `recommend`. Byte code of all of Snakemake takes longer to make than these tests need. Slurm is only
# unpacked, because the package would start a service.
"$venv/bin/python" -m pip install --quiet --no-compile "snakemake==9.*"
export SLURM_ROOT=$venv/slurm
if ! [ -d "$SLURM_ROOT" ]; then
    slurm='slurm-client slurm-wlm-basic-plugins libmunge2'
    (cd "$work" && { apt-get download -qq $slurm || { apt-get update -qq && apt-get download -qq $slurm; }; }) 2>/dev/null
    for package in "$work"/*.deb; do
        dpkg --extract "$package" "$SLURM_ROOT"
    done
fi
METAFLOW_TESTS_HOME=$work/home METAFLOW_TESTS_CARDS=$work/cards METAFLOW_TESTS_BARE=$venv/bare
export METAFLOW_TESTS_HOME METAFLOW_TESTS_CARDS METAFLOW_TESTS_BARE
mkdir "$METAFLOW_TESTS_HOME"
# From another folder, so that the installed package is tested and not the source.
(cd "$work" && "$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$root/python/metaflow_tests")
RESOURCE_TRACKER=unused CARDS=$work/cards "$root/tests/browser/run" cards.test.mjs
