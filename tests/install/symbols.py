#!/usr/bin/env python3
"""Checks what the native files in a folder of wheels and static programs need from a system.

usage: symbols.py FOLDER

A manylinux wheel may need glibc up to the version in its tag, a musllinux wheel only musl, and a program nothing.
Needs pyelftools.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

GLIBC = {"libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1"}
GLIBC |= {"ld-linux-aarch64.so.1", "ld-linux-x86-64.so.2"}
MUSL = {"libc.so"}


def native_files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """Yield the tag (empty for a program), the name and the content of each native file."""
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                for member in wheel.namelist():
                    content = wheel.read(member)
                    if content.startswith(b"\x7fELF"):
                        yield path.stem.split("-")[-1], f"{path.name}: {member}", content
        elif path.is_file() and (content := path.read_bytes()).startswith(b"\x7fELF"):
            yield "", path.name, content


def needs(elf: ELFFile) -> tuple[set[str], tuple[int, ...]]:
    """Libraries, and the highest version of glibc."""
    dynamic = elf.get_section_by_name(".dynamic")
    libraries = {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")} if dynamic else set()
    if elf.get_section_by_name(".interp"):
        libraries.add(elf.get_section_by_name(".interp").data().rstrip(b"\0").decode().rpartition("/")[2])
    versions = elf.get_section_by_name(".gnu.version_r")
    names = [need.name for _, needed in versions.iter_versions() for need in needed] if versions else []
    glibc = [tuple(map(int, name[6:].split("."))) for name in names if re.fullmatch(r"GLIBC_[0-9.]+", name)]
    return libraries, max(glibc, default=())


def main() -> None:
    wrong = count = 0
    for tag, name, content in native_files(Path(sys.argv[1])):
        libraries, glibc = needs(ELFFile(io.BytesIO(content)))
        limits = [tuple(map(int, found)) for found in re.findall(r"manylinux_(\d+)_(\d+)", tag)]
        # The command in a musllinux wheel is static.
        allowed = GLIBC if limits else MUSL if tag else set()
        fits = libraries <= allowed and glibc <= min(limits, default=())
        needed = " ".join(sorted(libraries)) or "nothing"
        version = f", glibc {'.'.join(map(str, glibc))}" if glibc else ""
        print(f"{'ok   ' if fits else 'WRONG'} {name} ({len(content) / 1e6:.1f} MB): needs {needed}{version}")
        wrong += not fits
        count += 1
    if not count:
        sys.exit(f"error: no native files in `{sys.argv[1]}`")
    if wrong:
        sys.exit("error: a file needs more than its tag allows")


main()
