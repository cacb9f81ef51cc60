#!/bin/sh
# R CMD check --as-cran of the package with its crates (r/tools/vendor.sh), without network and in an empty home.
#
#   tests/r/cran.sh TARBALL WORK_DIR
#
# Fails on an error, a warning, or a note that r/cran-comments.md does not name.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
tarball=$(realpath "$1")
work=$2
rm -rf "$work"
mkdir -p "$work/home"
work=$(realpath "$work")

# The build has its own target folder and must not use a cache of cargo.
unset CARGO_TARGET_DIR RESOURCE_TRACKER_PROFILE CARGO_HOME
LC_ALL=C.UTF-8
RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
PATH=$PATH:$HOME/.cargo/bin
HOME=$work/home
# Without the font inconsolata, whose Debian package is large.
R_RD4PDF=times,hyper
export LC_ALL RUSTUP_HOME PATH HOME R_RD4PDF

cd "$work"
# The namespace has a loopback device and nothing else.
unshare --net --map-root-user sh -c 'ip link set lo up && R CMD check --as-cran "$0"' "$tarball" || true

[ ! -e "$HOME/.cargo" ] || { echo "error: the build wrote to ~/.cargo" >&2; exit 1; }
log=$work/resource.tracker.Rcheck/00check.log
! grep -E '(WARNING|ERROR)S?$' "$log" || exit 1
grep -q '^Status: ' "$log" || { echo 'error: the check did not finish' >&2; exit 1; }
sed -n 's/^\* \(checking .*\) \.\.\..* NOTE$/\1/p' "$log" | while read -r note; do
    grep -qF "$note" "$root/r/cran-comments.md" || { echo "error: r/cran-comments.md does not name: $note" >&2; exit 1; }
done
R_LIBS=$work/resource.tracker.Rcheck Rscript --vanilla -e 'library(resource.tracker)
stopifnot(nzchar(vignette("resource-tracker")$PDF), file.exists(system.file("AUTHORS", package = "resource.tracker")))'
