#!/usr/bin/env python3
"""Checks that all packages state one version and the lowest Rust that builds them, and prints both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


# Pages that name the lowest Rust, as `Rust 1.2`, `rustc 1.2`, `[Rust](…) 1.2` or `rust:1.2`.
PAGES = ["docs/install.md", "docs/r.md", "docs/troubleshooting.md", "examples/Dockerfile", "r/README.md"]


def find_all(file: str, pattern: str) -> list[str]:
    found = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
    if not found:
        sys.exit(f"error: `{file}` has no line like `{pattern}`")
    return found


def find(file: str, pattern: str) -> str:
    return find_all(file, pattern)[0]


def main() -> None:
    version = find("Cargo.toml", r'^version = "(.+)"$')
    rust = find("Cargo.toml", r'^rust-version = "(.+)"$')
    stated = {
        "core dependency in Cargo.toml": (find("Cargo.toml", r'^resource-tracker = .*version = "(.+?)"'), version),
        "r/DESCRIPTION": (find("r/DESCRIPTION", r"^Version: (.+)$"), version),
        "r/src/rust/Cargo.toml": (find("r/src/rust/Cargo.toml", r'^version = "(.+)"$'), version),
        "newest section of CHANGELOG.md": (find("CHANGELOG.md", r"^## (?!Unreleased)(\S+)"), version),
        "package in docs/r.md": (find("docs/r.md", r"resource\.tracker_([0-9.]+)\.tar\.gz"), version),
        "Rust in r/DESCRIPTION": (find("r/DESCRIPTION", r"rustc \(>= ([0-9.]+)\)"), rust),
    }

    for page in PAGES:
        for number, named in enumerate(find_all(page, r"\b[Rr]ustc?\b(?:\]\(\S+\))?[ :\n](\d+\.\d+)"), 1):
            stated[f"Rust in {page} ({number})"] = (named, rust)

    # What the dependencies need. What our own code needs is checked by the lint `incompatible_msrv` of clippy.
    metadata = subprocess.run(
        ["cargo", "metadata", "--locked", "--format-version", "1"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    packages = json.loads(metadata.stdout)["packages"]
    needed = [
        (tuple(map(int, package["rust_version"].split("."))), package["name"])
        for package in packages
        if package["source"] and package["rust_version"]
    ]
    highest, crate = max(needed)
    stated[f"`rust-version` in Cargo.toml, beside that of {crate}"] = (rust, ".".join(map(str, highest[:2])))

    wrong = [f"{place}: {found} instead of {due}" for place, (found, due) in stated.items() if found != due]
    if wrong:
        sys.exit("error: " + "\n       ".join(wrong))
    print(f"version {version}, Rust {rust} (needed by {crate}), in {len(stated)} places")


main()
