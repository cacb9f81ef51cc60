#!/usr/bin/env bash
# Builds what a release consists of, for the processor of this machine running Linux.
#
#   tools/dist.sh [--to FOLDER] [PART...]
#
# The parts are `sdist`, `manylinux`, `musllinux` (wheels), `static` (the program, with its bill of materials and the licences
# of its crates) and `crates`; without a part all are built into `dist/`, with checksums. The wheel for musl is in
# `dist/musllinux/`, so that `pip install ./dist/*.whl` finds one wheel. RESOURCE_TRACKER_PROFILE=dev makes faster builds.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
dist=$root/dist
[ "${1:-}" != --to ] || { mkdir -p "$2" && dist=$(cd "$2" && pwd) && shift 2; }
parts=${*:-sdist manylinux musllinux static crates}
machine=$(uname -m)
target_dir=${CARGO_TARGET_DIR:-$root/target}
profile=${RESOURCE_TRACKER_PROFILE:-release}

# maturin builds wheels; zig is the linker and the C library for any version of Linux.
tools=$root/.venv/dist
[ -x "$tools/bin/python" ] || python3 -m venv "$tools"
"$tools/bin/python" -m pip install --quiet "auditwheel==6.*" "build==1.*" "maturin>=1.9,<2" "pyelftools==0.33" \
    "twine==7.*" "ziglang==0.17.*"
export PATH=$tools/bin:$PATH

wheel() { # wheel TARGET COMPATIBILITY FOLDER
    python -m build --wheel --no-isolation --outdir "$3" \
        --config-setting=build-args="--zig --target $1 --compatibility $2" .
}

# Runs a command with a compiler that has the standard library for musl: rustup's if the target is installed, otherwise
# Debian's, which comes with the sources of the library.
with_musl() {
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$machine-unknown-linux-musl" ]; then
        "$@"
        return
    fi
    local missing=()
    for package in rustc-web cargo-web rust-web-src; do
        dpkg-query -W -f='${Status}' $package 2>/dev/null | grep -q 'ok installed' || missing+=($package)
    done
    if [ ${#missing[@]} -gt 0 ]; then
        local sudo
        sudo=$([ "$(id -u)" = 0 ] || echo sudo)
        $sudo apt-get update -qq
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    fi
    # The objects that start a program come from zig, since this library has none.
    PATH=$tools/bin:/usr/bin:/bin CARGO=/usr/bin/cargo RUSTC=/usr/bin/rustc CARGO_TARGET_DIR=$target_dir/musl \
        RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD="std panic_abort" RUSTFLAGS=-Clink-self-contained=no "$@"
}

static() {
    local made
    made=$(mktemp -d)
    (cd crates/cli && maturin build --locked --zig --profile "$profile" --target "$machine-unknown-linux-musl" \
        --compatibility musllinux_1_2 --out "$made")
    python -m zipfile -e "$made"/*.whl "$made"
    install "$made"/*.data/scripts/resource-tracker "$dist/resource-tracker-$machine-linux"
    cp "$made"/*.dist-info/sboms/*.cyclonedx.json "$dist/resource-tracker-$machine-linux.cyclonedx.json"
    rm -r "$made"
    tools/licences.py --workspace --target=all >"$dist/THIRD-PARTY-LICENSES"
}

mkdir -p "$dist"
for part in $parts; do
    case $part in
        sdist) python -m build --sdist --no-isolation --outdir "$dist" . ;;
        manylinux) wheel "$machine-unknown-linux-gnu" manylinux_2_17 "$dist" ;;
        musllinux) with_musl wheel "$machine-unknown-linux-musl" musllinux_1_2 "$dist/musllinux" ;;
        static) with_musl static ;;
        crates)
            cargo package --workspace --exclude resource-tracker-python --locked --target-dir "$target_dir/package"
            cp "$target_dir"/package/package/*.crate "$dist"
            ;;
        *) echo "error: unknown part \`$part\`" >&2; exit 2 ;;
    esac
done

packages=$(find "$dist" -name "resource_tracker-*.whl" -o -name "resource_tracker-*.tar.gz")
if [ -n "$packages" ]; then
    twine check --strict $packages
fi
# On a machine with glibc, auditwheel takes the linker script `libc.so` for the C library of a musllinux wheel.
find "$dist" -name '*manylinux*.whl' -exec auditwheel show {} +
case $parts in
    *linux* | *static*) python tests/install/symbols.py "$dist" ;;
esac
cd "$dist"
find . -type f ! -name SHA256SUMS | sort | xargs sha256sum | sed 's|\./||' >SHA256SUMS
find . -type f -exec ls -l {} +
