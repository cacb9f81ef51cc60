"""Builds the wheel with both the native module and the command; maturin alone builds only one of them.

`data` in `pyproject.toml` names a folder whose `scripts` are installed as commands. First Cargo builds the command into
that folder, then maturin builds the module and packs both. `RESOURCE_TRACKER_PROFILE=dev` makes a faster, unoptimised
build.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Optional

import maturin

_ROOT = Path(__file__).resolve().parent.parent
_SCRIPTS = _ROOT / "build" / "wheel.data" / "scripts"
_COMMAND = "resource-tracker.exe" if sys.platform == "win32" else "resource-tracker"
_TOP_LEVEL = "airflow_resource_tracker\nmetaflow_extensions\npytest_resource_tracker\nresource_tracker\n"
_PROFILE = os.environ.get("RESOURCE_TRACKER_PROFILE", "release")

get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings: Optional[dict[str, Any]] = None) -> list[str]:
    return list(maturin.get_requires_for_build_wheel(config_settings))


get_requires_for_build_editable = get_requires_for_build_wheel


def _build_command() -> None:
    """Build the command; Cargo reports its path, since the target folder may be anywhere."""
    cargo = os.environ.get("CARGO", "cargo")
    build = [cargo, "build", "--package", "resource-tracker-cli", "--profile", _PROFILE, "--message-format=json"]
    if (_ROOT / "Cargo.lock").exists():
        build.append("--locked")
    done = subprocess.run(build, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True)
    messages = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    programs = [message["executable"] for message in messages if message.get("executable")]
    if len(programs) != 1:
        raise RuntimeError(f"expected one program from cargo, found {programs}")
    _SCRIPTS.mkdir(parents=True, exist_ok=True)
    shutil.copy2(programs[0], _SCRIPTS / _COMMAND)


def _with_profile(config_settings: Optional[dict[str, Any]]) -> dict[str, Any]:
    settings = dict(config_settings or {})
    settings.setdefault("build-args", f"--profile {_PROFILE}")
    return settings


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    # maturin checks for the folder before the command is built.
    _SCRIPTS.mkdir(parents=True, exist_ok=True)
    name = str(maturin.prepare_metadata_for_build_wheel(metadata_directory, _with_profile(config_settings)))
    (Path(metadata_directory) / name / "top_level.txt").write_text(_TOP_LEVEL)
    return name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    _build_command()
    name = str(maturin.build_wheel(wheel_directory, _with_profile(config_settings), metadata_directory))
    _name_packages(Path(wheel_directory) / name)
    return name


def build_editable(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    _build_command()
    name = str(maturin.build_editable(wheel_directory, _with_profile(config_settings), metadata_directory))
    _name_packages(Path(wheel_directory) / name)
    return name


def _name_packages(wheel: Path) -> None:
    """Add `top_level.txt`, by which Metaflow finds extensions; maturin does not write it."""
    digest = urlsafe_b64encode(sha256(_TOP_LEVEL.encode()).digest()).rstrip(b"=").decode()
    aside = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            content = old.read(member)
            folder, _, file = member.filename.rpartition("/")
            if folder.endswith(".dist-info"):
                if file == "top_level.txt":
                    continue
                if file == "RECORD":
                    path = f"{folder}/top_level.txt"
                    new.writestr(path, _TOP_LEVEL)
                    lines = [line for line in content.decode().splitlines() if not line.startswith(path)]
                    content = "\n".join([f"{path},sha256={digest},{len(_TOP_LEVEL)}", *lines, ""]).encode()
            # `member` keeps timestamp and permissions.
            new.writestr(member, content, zipfile.ZIP_DEFLATED)
    aside.replace(wheel)


def build_sdist(sdist_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    _SCRIPTS.mkdir(parents=True, exist_ok=True)
    name = str(maturin.build_sdist(sdist_directory, config_settings))
    _restore_workspace(Path(sdist_directory) / name)
    return name


def _restore_workspace(archive: Path) -> None:
    """Restore the Cargo files, from which maturin removes the command because the module does not depend on it."""
    originals = {"Cargo.toml", "Cargo.lock"}
    aside = archive.with_suffix(".tmp")
    with tarfile.open(archive) as old, tarfile.open(aside, "w:gz") as new:
        for member in old:
            path = member.name.split("/", 1)[-1]
            content = old.extractfile(member)
            if path in originals:
                text = (_ROOT / path).read_bytes()
                member.size = len(text)
                content = io.BytesIO(text)
            new.addfile(member, content)
    aside.replace(archive)
