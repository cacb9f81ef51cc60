#!/bin/sh
# Builds the wheel, installs it into a fresh environment for each Python there is, and tests what was installed.
#
#   python/tests/run.sh [VENV_DIR] [PYTHON...]
#
# 3.11 must be there; others are tested as far as the machine has them, side by side since their tests mostly wait.
# RESOURCE_TRACKER_PROFILE=dev builds faster.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venvs=${1:-$root/target/python}
[ $# -gt 0 ] && shift
pythons=${*:-python3.11 python3.9 python3.10 python3.12 python3.13}
mkdir -p "$venvs"
wheels=$(mktemp -d)
trap 'rm -r "$wheels"' EXIT

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

check_sources() {
    "$1/bin/ruff" check "$root/python" "$root/build_backend"
    "$1/bin/ruff" format --check "$root/python" "$root/build_backend"
    "$1/bin/mypy" --strict "$root/python/resource_tracker"
    (cd "$venvs" && "$1/bin/stubtest" --mypy-config-file "$root/pyproject.toml" resource_tracker)
}

# From elsewhere, so that the installed package is tested and not the source; what runs in the background ignores SIGINT,
# which tests send.
run_tests() {
    venv=$1
    shift
    (cd "$venvs" && env --default-signal=INT,QUIT "$venv/bin/python" -m pytest --quiet "$@" "$root/python/tests")
}

built=
others=
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
        check_sources "$venv"
        run_tests "$venv"
    else
        others="$others $python"
    fi
done

# Accuracy is the system's Python's to show, whichever runs the tests: once is enough.
for python in $others; do
    run_tests "$venvs/$python" --ignore="$root/python/tests/test_accuracy.py" >"$wheels/$python.out" 2>&1 &
    echo $! >"$wheels/$python.pid"
done
failed=
for python in $others; do
    wait "$(cat "$wheels/$python.pid")" || failed="$failed $python"
    echo "$python:"
    cat "$wheels/$python.out"
done
[ -z "$failed" ] || { echo "error: tests failed on$failed" >&2; exit 1; }
