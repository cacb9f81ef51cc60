#!/bin/sh
# Builds, checks, installs and tests the R package.
#
#   tests/r/run.sh [WORK_DIR]
#
# RESOURCE_TRACKER_PROFILE=dev builds faster. Cargo's target folder is shared with the rest of the repository.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=${1:-$root/target/r}
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
CARGO_INCREMENTAL=0
# R writes text in the encoding of the locale, and a clean machine has no locale set.
LC_ALL=C.UTF-8
export CARGO_TARGET_DIR CARGO_INCREMENTAL LC_ALL
manifest=$root/r/src/rust/Cargo.toml

# Lints of the binding, which is a separate workspace.
cargo fmt --manifest-path "$manifest" --package resource-tracker-r --check
cargo clippy --locked --quiet --manifest-path "$manifest" --package resource-tracker-r -- -D warnings

# Generated files must be up to date.
rm -rf "$work/fresh" "$work/package"
mkdir -p "$work/fresh" "$work/package"
cp -RL "$root/r/." "$work/package"
"$root/r/tools/generate" "$work/fresh/library" "$work/package" >"$work/fresh/generate.log" 2>&1 ||
    { cat "$work/fresh/generate.log" >&2; exit 1; }
for made in DESCRIPTION NAMESPACE R man src/rust/Cargo.toml src/rust/Cargo.lock; do
    diff -r "$root/r/$made" "$work/package/$made" ||
        { echo "error: run \`make generate\`: \`r/$made\` is out of date" >&2; exit 1; }
done

# The tarball. R builds it in a folder with a random name, so cargo's files from there cannot be reused.
touch "$work/before"
(cd "$work" && rm -f resource.tracker_*.tar.gz && R CMD build "$root/r")
find "$CARGO_TARGET_DIR" -type f -path '*/deps/*' -name '*resource_tracker*' -newer "$work/before" -delete
tarball=$(ls "$work"/resource.tracker_*.tar.gz)
tar -tzf "$tarball" | grep -q '^resource.tracker/src/rust/core/src/lib.rs$' ||
    { echo "error: \`$tarball\` lacks the sources of the core" >&2; exit 1; }

# Only a note about the installed size is accepted, and no test may be skipped.
(cd "$work" && R CMD check --no-manual "$tarball")
checked=$work/resource.tracker.Rcheck
notes=$(grep -E '(NOTE|WARNING|ERROR)S?$' "$checked/00check.log" |
    grep -Ev '^(\* checking installed package size|Status: 1 NOTE)' || true)
[ -z "$notes" ] || { echo "error: R CMD check has findings: $notes" >&2; exit 1; }
grep -q 'SKIP 0 ' "$checked/tests/testthat.Rout" ||
    { echo 'error: R CMD check skipped tests' >&2; exit 1; }

# Tests of the installed package with the rest of the repository.
(cd "$root" && env -u CARGO_INCREMENTAL cargo build-for-tests)
export RESOURCE_TRACKER="$CARGO_TARGET_DIR/debug/resource-tracker" R_LIBS="$checked" XDG_DATA_HOME="$work/data"
cd "$root/tests/r"
Rscript --vanilla -e 'library(testthat); library(resource.tracker)
test_dir(".", reporter = "summary", stop_on_failure = TRUE, stop_on_warning = TRUE)'
