#!/usr/bin/env bash
# Builds the command for Windows with Debian's compiler and runs it under Debian's wine.
#
# usage: tests/windows/run.sh FOLDER   FOLDER takes the build and wine's files
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

# Debian's cargo and rustc instead of rustup's, because Debian packages the sources of the standard library with them.
cargo() {
    PATH=/usr/bin:/bin RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_DIR="$folder" \
        /usr/bin/cargo "$@" -Zbuild-std=std,panic_abort --target x86_64-pc-windows-gnu
}
cd "$here/../.."
cargo build -p resource-tracker-cli
tests=$(cargo test -p resource-tracker --lib --no-run --message-format=json |
    python3 -c 'import json, sys
made = [json.loads(line) for line in sys.stdin]
print(*[message["executable"] for message in made if message.get("executable")])')

run=$folder/wine
mkdir -p "$run"
cp "$folder/x86_64-pc-windows-gnu/debug/resource-tracker.exe" "$run/"
x86_64-w64-mingw32-gcc -shared -o "$run/bcryptprimitives.dll" "$here/bcryptprimitives.c" -ladvapi32
export WINEPREFIX=$run/prefix WINEDEBUG=-all RESOURCE_TRACKER_OFFLINE=1
unset XDG_DATA_HOME XDG_CONFIG_HOME XDG_CACHE_HOME
cd "$run"
rm -f run.json.gz
timeout 120 wine wineboot -i >/dev/null 2>&1

# The unit tests of the core, run in the folder that their fixture paths are relative to.
cp "$tests" core-tests.exe
(cd "$here/../../crates/core" && timeout 300 wine "$run/core-tests.exe" --quiet)

# tracker ARGUMENTS…: runs the command. Files out and err: its streams, with Unix line ends. Variable code: exit code.
tracker() {
    code=0
    timeout 60 wine ./resource-tracker.exe "$@" >out.crlf 2>err.crlf </dev/null || code=$?
    tr -d '\r' <out.crlf >out
    tr -d '\r' <err.crlf >err
    echo "+ resource-tracker $*   (exit $code)"
    sed 's/^/  | /' out err
}
fail() { echo "FAILED: $*" >&2; exit 1; }

tracker run -o run.json.gz -- cmd /c echo hi
[ "$code" = 0 ] || fail "exit code of a successful job is not 0"
[ "$(cat out)" = hi ] || fail "standard output differs from the output of the job"
grep -q '^  memory ' err || fail "the summary has no memory"
[ "$(gzip -dc run.json.gz | python3 -c 'import json, sys; run = json.load(sys.stdin)
print(run["metadata"]["resource_tracker"]["implementation"], len(run["process_metrics"]), run["run"]["exit_code"])')" \
    = "sysinfo 1 0" ] || fail "the recording is not one row of the sysinfo backend"

tracker run --no-save -q -- cmd /c exit 3
[ "$code" = 3 ] || fail "the exit code of the job is not passed on"
tracker run --no-save -q -- no-such-command
[ "$code" = 127 ] || fail "exit code of a missing command is not 127"

tracker system --samples 2
[ "$code" = 0 ] && [ "$(wc -l <out)" = 3 ] || fail "system does not print a header and two rows"
awk -F, 'NR > 1 && ($2 < 1 || $6 < 1024 || $7 < 1024) { exit 1 }' out || fail "processes or memory are missing"

# `process` tracks its parent process, which must be a Windows program under wine.
tracker run --no-save -q -- ./resource-tracker.exe process --samples 1 -i 0.1
[ "$code" = 0 ] && [ "$(wc -l <out)" = 2 ] || fail "process does not print a header and a row"

tracker info
[ "$code" = 0 ] && grep -q '^machine .*win32' out || fail "info does not show the machine"
grep -q '^processes  *works' out || fail "info shows a data source that does not work"

tracker list
[ "$code" = 0 ] || fail "the history cannot be listed"
tracker stats run.json.gz
[ "$code" = 0 ] && grep -q process_cpu_usage out || fail "the recording cannot be read"
wineserver -k || true
echo "Windows: all passed"
