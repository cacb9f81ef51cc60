#!/bin/sh
# Builds the wheel, installs it into a fresh environment for each Python there is, and tests what was installed.
#
#   python/tests/run.sh [VENV_DIR] [PYTHON...]
#
# 3.11 must be there; others are tested as far as the machine has them. RESOURCE_TRACKER_PROFILE=dev builds faster.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venvs=${1:-$root/target/python}
[ $# -gt 0 ] && shift
pythons=${*:-python3.11 python3.9 python3.10 python3.12 python3.13}
mkdir -p "$venvs"
wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT
built=
# Where a Python is: on the path, or installed beside a shim that does not choose it.
find_python() {
    shim=$(command -v "$1") || return 0
    for found in "$shim" "${shim%/*/*}"/versions/"${1#python}".*/bin/"$1"; do
        if "$found" -c 'import venv' 2>/dev/null; then
            echo "$found"
            return
        fi
    done
}
for python in $pythons; do
    found=$(find_python "$python")
    if [ -z "$found" ]; then
        if [ "$python" = python3.11 ]; then
            echo "error: python3.11 is needed for these tests" >&2
            exit 1
        fi
        echo "$python: not here"
        continue
    fi
    venv=$venvs/$python
    [ -x "$venv/bin/python" ] || "$found" -m venv "$venv"
    if [ -z "$built" ]; then
        "$venv/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$wheels" "$root"
        built=yes
    fi
    "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$wheels"/*.whl
    "$venv/bin/python" -m pip install --quiet pytest
    if [ "$python" = python3.11 ]; then
        "$venv/bin/python" -m pip install --quiet gevent ipython mypy pandas polars psutil pyarrow ruff
        "$venv/bin/ruff" check "$root/python" "$root/build_backend"
        "$venv/bin/ruff" format --check "$root/python" "$root/build_backend"
        "$venv/bin/mypy" --strict "$root/python/resource_tracker"
        (cd "$venvs" && "$venv/bin/stubtest" --mypy-config-file "$root/pyproject.toml" resource_tracker)
    fi
    # From elsewhere, so that the installed package is tested and not the source. Accuracy is the system's Python's to
    # show, whichever runs the tests: once is enough.
    only=
    [ "$python" = python3.11 ] || only="--ignore=$root/python/tests/test_accuracy.py"
    # shellcheck disable=SC2086
    (cd "$venvs" && "$venv/bin/python" -m pytest --quiet $only "$root/python/tests")
done
