#!/bin/sh
# Runs the README's command for a fresh machine as a new user: in a clean clone, with an empty home and an empty cargo cache.
# The compiler may come from an existing rustup folder.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home"
git clone --quiet "$root" "$work/resource-tracker"
cd "$work/resource-tracker"
began=$(date +%s)
{
    python3 tests/docs/blocks.py README.md sh "cargo run"
    echo 'cargo run --release -- report last --open'
    echo 'cargo install --locked --path crates/cli'
    echo '~/.cargo/bin/resource-tracker --version'
} >"$work/start.sh"
env -i HOME="$work/home" PATH="$PATH" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" BROWSER=echo \
    SSL_CERT_FILE="${SSL_CERT_FILE:-}" sh -eux "$work/start.sh"
ls -l ./*-report.html
echo "first report after $(($(date +%s) - began)) s"
