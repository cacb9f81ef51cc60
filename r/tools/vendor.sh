#!/bin/sh
# Makes the R package that builds offline: dist/resource.tracker_VERSION.tar.gz, with the crates it needs.
#
#   r/tools/vendor.sh [DIST_DIR]
#
# R CMD build installs the package for its vignette. RESOURCE_TRACKER_PROFILE=dev makes that faster; the result is the same.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
dist=${1:-$root/dist}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$work/package
rust=$package/src/rust
vendor=$work/vendor

cp -RL "$root/r" "$package"
(cd "$package" && ./cleanup)
cargo vendor --quiet --locked --versioned-dirs --manifest-path "$rust/Cargo.toml" "$vendor" >/dev/null

# The crates of the platforms that R packages of this kind are built on, with authors and licences.
{
    echo 'The package contains these Rust crates, as src/rust/vendor.tar.xz and in its compiled library. Their licence files'
    echo 'are in that archive.'
    "$root/tools/licences.py" --no-texts --manifest-path="$rust/Cargo.toml" --package=resource-tracker-r \
        --target=x86_64-unknown-linux-gnu --target=aarch64-unknown-linux-gnu \
        --target=x86_64-apple-darwin --target=aarch64-apple-darwin
} >"$package/inst/AUTHORS"
crates=$(sed -n '/^[^ ]*$/p' "$package/inst/AUTHORS")

# Cargo wants a manifest and a library of every crate in Cargo.lock; of crates that are not built both are empty shells. Of
# the rest, what only their own tests need is left out. So the list of files is empty; the checksum of each crate stays.
for folder in "$vendor"/*; do
    case " $(echo $crates) " in
        *" $(basename "$folder") "*)
            rm -rf "$folder/tests" "$folder/benches"
            # Some libraries include an example in their documentation.
            grep -rq '\.\./examples/' "$folder/src" || rm -rf "$folder/examples"
            ;;
        *)
            find "$folder" -type f ! -name Cargo.toml ! -name .cargo-checksum.json -delete
            mkdir -p "$folder/src"
            : >"$folder/src/lib.rs"
            ;;
    esac
    sed -i.old 's/"files":{[^}]*}/"files":{}/' "$folder/.cargo-checksum.json"
    rm "$folder/.cargo-checksum.json.old"
done
find "$vendor" -type d -empty -delete
cat >"$vendor/config.toml" <<END
[source.crates-io]
replace-with = "vendor"

[source.vendor]
directory = "vendor"
END
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -C "$work" -cf - vendor | xz -9 >"$rust/vendor.tar.xz"

mkdir -p "$dist"
rm -f "$dist"/resource.tracker_*.tar.gz
(cd "$dist" && R CMD build "$package")
ls -l "$dist"/resource.tracker_*.tar.gz
