#!/usr/bin/env bash
# Installs what `make dist` made where nothing else is. The wheel is installed by the README's command in a Debian 11 that has
# only Python 3.9 (neither compiler nor network), where the README's commands and its program are run; the source package in a
# new virtual environment; the static program in an empty folder. The module for musl is loaded by the loader of musl. Needs
# root.
#
#   tests/install/run.sh DIST WORK_DIR
set -euo pipefail
cd "$(dirname "$0")/../.."
dist=$(cd "$1" && pwd)
mkdir -p "$2"
work=$(cd "$2" && pwd)
machine=$(uname -m)
wheel=$(ls "$dist"/*manylinux*"$machine".whl)
musl=$(ls "$dist"/musllinux/*musllinux*"$machine".whl)
program=$dist/resource-tracker-$machine-linux
(cd "$dist" && sha256sum --check --quiet SHA256SUMS)

debian=$work/debian-11
[ -e "$debian/made" ] || {
    rm -rf "$debian"
    debootstrap --variant=minbase --include=python3-pip,python3-venv bullseye "$debian" >"$work/debootstrap.log"
    touch "$debian/made"
}
rm -rf "$debian/start"
mkdir "$debian/start"
cp -r "$dist" "$debian/start/dist"
echo "== $(basename "$wheel") in Debian 11"
install='pip install ./dist/*.whl'
for page in README.md docs/install.md; do
    grep -qF "$install" "$page" || { echo "error: \`$page\` does not say \`$install\`" >&2; exit 1; }
done
# That command, and README's commands and its program.
{
    cat <<'START'
set -eux
cd /start
for compiler in cc gcc rustc cargo; do
    ! command -v $compiler || { echo "error: this is not an empty system" >&2; exit 1; }
done
python3 -m venv venv
PATH=$PWD/venv/bin:$PATH
START
    echo "$install"
    python3 tests/docs/blocks.py README.md sh resource-tracker
    echo resource-tracker list
    echo "python3 - <<'PYTHON'"
    python3 tests/docs/blocks.py README.md python
    echo PYTHON
    echo 'ls -l ./*.html'
} >"$debian/start/start.sh"
began=$(date +%s)
enter='mount -t proc proc "$1/proc" && exec chroot "$1" env -i HOME=/start PATH=/usr/bin:/bin PIP_NO_INDEX=1 BROWSER=true sh /start/start.sh'
unshare --mount --net --pid --fork sh -c "$enter" sh "$debian"
echo "installed and started in $(($(date +%s) - began)) s"

for file in "$wheel" "$musl" "$dist"/resource_tracker-*.tar.gz; do
    case $file in
        *.whl) python3 -m zipfile -l "$file" ;;
        *) tar -tf "$file" ;;
    esac | grep THIRD-PARTY-LICENSES || { echo "error: \`$file\` lacks the licences of its crates" >&2; exit 1; }
done

echo "== $(basename "$musl") by the loader of musl"
# Debian has no Python for musl. All that the loader may miss are the functions of Python. The package is not installed: programs
# that look for its loader, such as Spark, would take this for a system with musl.
rm -rf "$work/musl"
mkdir "$work/musl"
(cd "$work/musl" && apt-get download -qq musl && dpkg -x musl_*.deb .)
loader=$work/musl/lib/$machine-linux-musl/libc.so
python3 -m zipfile -e "$musl" "$work/musl"
for module in "$work"/musl/resource_tracker/*.so; do
    listed=$("$loader" --list "$module" 2>&1 || true)
    missing=$(sed -n 's/.*: \(.*\): symbol not found$/\1/p' <<<"$listed" | sort -u)
    others=$(grep -v '^_\?Py' <<<"$missing" || true)
    if [ -z "$missing" ] || [ -n "$others" ]; then
        echo "error: $module lacks ${others:-nothing, not even Python}" >&2
        exit 1
    fi
    echo "$(basename "$module"): $(wc -l <<<"$missing") functions of Python, and nothing else is missing"
done

echo "== $(basename "$program") in an empty folder"
tests/install/static.py "$program"

echo "== $(basename "$dist"/resource_tracker-*.tar.gz) in a new virtual environment"
rm -rf "$work/source"
python3 -m venv "$work/source"
RESOURCE_TRACKER_PROFILE=dev CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target} \
    "$work/source/bin/pip" install --quiet --no-cache-dir "$dist"/resource_tracker-*.tar.gz
"$work/source/bin/resource-tracker" --version
"$work/source/bin/python" -c 'import resource_tracker; print(resource_tracker.__version__)'

echo "== size and start"
ls -l "$wheel" "$program"
hyperfine --shell=none --warmup 5 "$program --version" "$debian/start/venv/bin/resource-tracker --version"
