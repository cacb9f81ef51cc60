#!/bin/sh
# Runs the first commands of the README as a new user: in a clean clone, with an empty home and an empty cargo cache.
# The compiler may come from an existing rustup folder.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/home"
git clone --quiet "$root" "$work/resource-tracker"
cd "$work/resource-tracker"
began=$(date +%s)
env -i HOME="$work/home" PATH="$work/home/.cargo/bin:$PATH" RUSTUP_HOME="${RUSTUP_HOME:-$HOME/.rustup}" BROWSER=echo \
    SSL_CERT_FILE="${SSL_CERT_FILE:-}" sh -eux <<'README'
cargo install --locked --path crates/cli
~/.cargo/bin/resource-tracker run -- sh -c 'seq 1000000 | sort -R | tail -1'
~/.cargo/bin/resource-tracker report last --open
README
ls -l ./*-report.html
echo "first report after $(($(date +%s) - began)) s"
