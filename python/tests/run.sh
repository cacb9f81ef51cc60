#!/bin/sh
# Installs the wheel into a virtual environment for each Python version, and tests the installed package.
#
#   RESOURCE_TRACKER_WHEEL=FILE python/tests/run.sh [VENV_DIR] [PYTHON...]
#
# Python 3.11 is required. Other versions are tested if the machine has them, in parallel since their tests mostly wait.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
venvs=${1:-$root/target/python}
[ $# -gt 0 ] && shift
: "${RESOURCE_TRACKER_WHEEL:?must name the wheel, which \`make wheel\` builds}"
pythons=${*:-python3.11 python3.9 python3.10 python3.12 python3.13 python3.14}
mkdir -p "$venvs"
outputs=$(mktemp -d)
trap 'rm -r "$outputs"' EXIT

# Finds a Python on the path, or among the versions of pyenv if the shim does not select it.
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
    "$1/bin/ruff" check "$root/python" "$root/build_backend" "$root/tests/install" "$root/tools"
    "$1/bin/ruff" format --check "$root/python" "$root/build_backend" "$root/tests/install" "$root/tools"
    "$1/bin/mypy" --strict "$root/python/resource_tracker" "$root/python/pytest_resource_tracker"
    (cd "$venvs" && "$1/bin/stubtest" --mypy-config-file "$root/pyproject.toml" resource_tracker)
}

# From another folder, so that the installed package is tested and not the source. Background jobs ignore SIGINT, which
# tests send, so its default is restored.
run_tests() {
    venv=$1
    shift
    (cd "$venvs" && $in_session env --default-signal=INT,QUIT "$venv/bin/python" -m pytest --quiet "$@" "$root/python/tests")
}

others=
in_session=
for python in $pythons; do
    found=$(find_python "$python")
    if [ -z "$found" ]; then
        if [ "$python" = python3.11 ]; then
            echo "error: these tests need python3.11" >&2
            exit 1
        fi
        echo "$python: not installed"
        continue
    fi
    venv=$venvs/$python
    [ -x "$venv/bin/python" ] || "$found" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps "$RESOURCE_TRACKER_WHEEL"
    "$venv/bin/python" -m pip install --quiet jsonschema pytest
    if [ "$python" = python3.11 ]; then
        # The original package, for the tests that compare the two.
        original=$venvs/original
        [ -x "$original/bin/python" ] || "$found" -m venv "$original"
        "$original/bin/python" -m pip install --quiet resource-tracker==0.4.2
        export RESOURCE_TRACKER_ORIGINAL="$original/bin/python"
        "$venv/bin/python" -m pip install --quiet duckdb gevent ipykernel ipython mypy nbclient pandas polars psutil pyarrow pyright \
            pytest-xdist ruff
        check_sources "$venv"
        run_tests "$venv"
    else
        others="$others $python"
    fi
done

# Each version in a session of its own: a tracker counts orphans of its session and process group as members of the job,
# and the other versions' tests leave such orphans. The tests of accuracy and memory measure the native module, which is the
# same for all versions, so once is enough; beside each other, they would disturb the machine's memory counters.
in_session='setsid --wait'
for python in $others; do
    run_tests "$venvs/$python" --ignore="$root/python/tests/test_accuracy.py" --ignore="$root/python/tests/test_memory.py" \
        -k "not empty_environment" \
        >"$outputs/$python.out" 2>&1 &
    echo $! >"$outputs/$python.pid"
done
failed=
for python in $others; do
    wait "$(cat "$outputs/$python.pid")" || failed="$failed $python"
    echo "$python:"
    cat "$outputs/$python.out"
done
[ -z "$failed" ] || { echo "error: tests failed on$failed" >&2; exit 1; }
