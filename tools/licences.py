#!/usr/bin/env python3
"""Prints which Rust crates a build needs, with their authors and licences, and the texts of these licences.

usage: licences.py [--no-texts] ARGUMENT_OF_CARGO_TREE...    such as --workspace --target=all
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

FILE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.IGNORECASE)


def cargo(*command: str) -> str:
    return subprocess.run(["cargo", *command], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout


def crates(arguments: list[str]) -> list[dict[str, Any]]:
    """Return the crates that are compiled, as `cargo metadata` describes them."""
    tree = cargo("tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}", *arguments)
    used = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    manifest = [word for word in arguments if word.startswith("--manifest-path=")]
    packages = json.loads(cargo("metadata", "--locked", "--format-version", "1", *manifest))["packages"]
    found = [one for one in packages if one["source"] and (one["name"], f"v{one['version']}") in used]
    return sorted(found, key=lambda one: (one["name"], one["version"]))


def texts(crate: dict[str, Any]) -> list[str]:
    folder = Path(crate["manifest_path"]).parent
    files = [path for path in folder.glob("*") if FILE.match(path.name)]
    files += [path for part in files if part.is_dir() for path in part.iterdir()]
    return [path.read_text(encoding="utf-8", errors="replace").strip() for path in sorted(files) if path.is_file()]


def main() -> None:
    # Not that of a Windows console.
    sys.stdout.reconfigure(encoding="utf-8")
    arguments = sys.argv[1:]
    with_texts = "--no-texts" not in arguments
    found = crates([word for word in arguments if word != "--no-texts"])
    if with_texts:
        print("These Rust crates are part of resource-tracker. The texts of their licences follow.")
    users: dict[str, tuple[str, list[str]]] = {}
    for crate in found:
        name = f"{crate['name']}-{crate['version']}"
        authors = ", ".join(crate["authors"]) or "see the repository"
        print(f"\n{name}\n  authors: {authors}\n  license: {crate['license']}\n  repository: {crate['repository']}")
        for text in texts(crate) if with_texts else []:
            # Line breaks and indentation differ between crates.
            users.setdefault(" ".join(text.split()), (text, []))[1].append(name)
    for text, names in users.values():
        print(f"\n{'-' * 80}\n{', '.join(dict.fromkeys(names))}\n{'-' * 80}\n\n{text}")


main()
