"""Builds the wheel with both the native module and the command; maturin alone builds only one of them.

`data` in `pyproject.toml` names a folder whose `scripts` are installed as commands. First maturin builds the command,
which is copied into that folder, then the module, and packs both. The setting `build-args` applies to both:
`--zig --target …` makes a wheel for another C library. `RESOURCE_TRACKER_PROFILE=dev` builds faster, unoptimised. The
licences of the Rust crates are written into a file that `license-files` in `pyproject.toml` names.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Optional

import maturin

_ROOT = Path(__file__).resolve().parent.parent
_LICENCES = _ROOT / "build" / "THIRD-PARTY-LICENSES"
_SCRIPTS = _ROOT / "build" / "wheel.data" / "scripts"
_TOP_LEVEL = "airflow_resource_tracker\nmetaflow_extensions\npytest_resource_tracker\nresource_tracker\n"
_PROFILE = os.environ.get("RESOURCE_TRACKER_PROFILE", "release")

get_requires_for_build_sdist = maturin.get_requires_for_build_sdist


def get_requires_for_build_wheel(config_settings: Optional[dict[str, Any]] = None) -> list[str]:
    return list(maturin.get_requires_for_build_wheel(config_settings))


get_requires_for_build_editable = get_requires_for_build_wheel


def _build_command(config_settings: dict[str, Any]) -> None:
    """Build the command into the folder of scripts. maturin packs a program as a wheel, from which it is taken."""
    arguments = shlex.split(config_settings["build-args"])
    if "--compatibility" not in arguments:
        arguments += ["--compatibility", "off"]
    if (_ROOT / "Cargo.lock").exists():
        arguments.append("--locked")
    shutil.rmtree(_SCRIPTS, ignore_errors=True)
    _SCRIPTS.mkdir(parents=True)
    with TemporaryDirectory() as folder:
        subprocess.run(["maturin", "build", "--out", folder, *arguments], cwd=_ROOT / "crates" / "cli", check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            for member in packed.infolist():
                if ".data/scripts/" in member.filename:
                    program = _SCRIPTS / Path(member.filename).name
                    program.write_bytes(packed.read(member))
                    program.chmod(0o755)


def _write_licences() -> None:
    """Write the licences of the crates. A source package has the file and not the script."""
    script = _ROOT / "tools" / "licences.py"
    if script.exists():
        command = [sys.executable, str(script), "--workspace", "--target=all"]
        printed = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True).stdout
        _LICENCES.parent.mkdir(exist_ok=True)
        _LICENCES.write_bytes(printed)


def _with_profile(config_settings: Optional[dict[str, Any]]) -> dict[str, Any]:
    settings = dict(config_settings or {})
    settings["build-args"] = f"--profile {_PROFILE} {settings.get('build-args', '')}"
    return settings


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Optional[dict[str, Any]] = None) -> str:
    # maturin checks for the folder before the command is built.
    _SCRIPTS.mkdir(parents=True, exist_ok=True)
    _write_licences()
    name = str(maturin.prepare_metadata_for_build_wheel(metadata_directory, _with_profile(config_settings)))
    (Path(metadata_directory) / name / "top_level.txt").write_text(_TOP_LEVEL)
    return name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    settings = _with_profile(config_settings)
    _write_licences()
    _build_command(settings)
    name = str(maturin.build_wheel(wheel_directory, settings, metadata_directory))
    _name_packages(Path(wheel_directory) / name)
    return name


def build_editable(
    wheel_directory: str, config_settings: Optional[dict[str, Any]] = None, metadata_directory: Optional[str] = None
) -> str:
    settings = _with_profile(config_settings)
    _write_licences()
    _build_command(settings)
    name = str(maturin.build_editable(wheel_directory, settings, metadata_directory))
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
    _write_licences()
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
