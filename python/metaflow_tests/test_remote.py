"""A step on another machine: a code package, unpacked where neither Metaflow nor this package is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import conftest
import pytest
from metaflow.cards import get_cards


@pytest.fixture(scope="module")
def bare() -> str:
    """An interpreter with only the dependencies of Metaflow."""
    folder = Path(os.environ.get("METAFLOW_TESTS_BARE") or conftest.HOME / "bare")
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "requests"], check=True)
    python = str(folder / "bin" / "python")
    for package in ("metaflow", "resource_tracker"):
        done = subprocess.run([python, "-c", f"import {package}"], capture_output=True, cwd=conftest.HOME)
        assert done.returncode != 0, f"{package} is installed there"
    return python


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    archive = tmp_path / "code.tgz"
    done = conftest.command("remote", "package", "save", str(archive))
    assert done.returncode == 0, done.stderr
    # Below the folder of the datastore, where Metaflow saves cards.
    folder = conftest.HOME / tmp_path.name
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder


def _step(bare: str, folder: Path, flows, task_id: str):
    """Run the command of a remote machine; return its output and its task."""
    from metaflow import Task

    run_id = flows.run("remote")[0]
    options = ["--quiet", "--metadata", "local", "--environment", "local", "--datastore", "local"]
    options += ["--datastore-root", str(conftest.HOME / ".metaflow"), "--no-pylint"]
    options += ["--event-logger", "nullSidecarLogger", "--monitor", "nullSidecarMonitor"]
    step = ["step", "work", "--run-id", run_id, "--task-id", task_id, "--input-paths", f"{run_id}/start/1"]
    environment = {**os.environ, "PYTHONPATH": str(folder / ".mf_code")}
    line = [bare, "remote.py", *options, *step]
    done = subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done, Task(f"RemoteFlow/{run_id}/work/{task_id}")


def test_code_package_contains_the_native_module(bare: str, unpacked: Path, flows) -> None:
    assert (unpacked / ".mf_code" / "resource_tracker" / "_native.abi3.so").exists()
    done, task = _step(bare, unpacked, flows, "remote-1")
    data = task["resource_tracker_data"].data
    assert "error" not in data and len(data["process_metrics"]) >= 3
    (card,) = get_cards(task)
    assert "Recommended resources" in card.get()
    assert "untracked" not in done.stdout + done.stderr


def test_native_module_for_another_platform_is_one_line_in_the_log(bare: str, unpacked: Path, flows) -> None:
    module = unpacked / ".mf_code" / "resource_tracker" / "_native.abi3.so"
    image = bytearray(module.read_bytes())
    image[18:20] = (0xF3).to_bytes(2, "little")  # e_machine of ELF: RISC-V
    module.unlink()
    module.write_bytes(image)
    done, task = _step(bare, unpacked, flows, "remote-2")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert len(lines) == 1 and "this step runs untracked" in lines[0] and "has no native module for" in lines[0], lines
    data = task["resource_tracker_data"].data
    assert data["error"]["error_type"] == "ImportError"
    (card,) = get_cards(task)
    assert "has no native module for" in card.get()
    # A package installed on that machine is used instead.
    installed = unpacked / "installed"
    import resource_tracker

    installed.mkdir()
    (installed / "resource_tracker").symlink_to(Path(resource_tracker.__file__).parent)
    module = "metaflow_extensions.resource_tracker.plugins.track_resources"
    code = f"import metaflow; from {module}.package import import_tracker"
    program = f"{code}; t = import_tracker()(interval=0.05); t.stop(); print(t.n_samples > 0)"
    environment = {**os.environ, "PYTHONPATH": f"{unpacked / '.mf_code'}:{installed}"}
    done = subprocess.run([bare, "-c", program], env=environment, capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
