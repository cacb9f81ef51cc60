#!/bin/sh
# Runs a DAG on Airflow, offline, with the installed wheel.
#
#   RESOURCE_TRACKER_WHEEL=FILE python/airflow_tests/run.sh [VENV_DIR]
#
# constraints.txt has the versions that `pip install apache-airflow` resolved to; Airflow's own list is not in a package
# registry.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venv=${1:-$root/target/airflow}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$venv/bin/python" ] || python3.11 -m venv "$venv"
wheel=${RESOURCE_TRACKER_WHEEL:?must name the wheel, which \`make wheel\` builds}
"$venv/bin/python" -m pip install --quiet --constraint "$root/python/airflow_tests/constraints.txt" apache-airflow pytest
"$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheel"
# From another folder, so that the installed package is tested and not the source.
(cd "$work" && "$venv/bin/python" -m pytest --quiet -p no:cacheprovider "$root/python/airflow_tests")
