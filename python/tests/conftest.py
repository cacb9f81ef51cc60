"""What the tests share: a home of their own, no network, and programs that run in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

os.environ["RESOURCE_TRACKER_OFFLINE"] = "1"

#: Columns of the two tables, as the contract has them.
PROCESS = "timestamp pid children utime stime cpu_usage memory read_bytes write_bytes gpu_usage gpu_vram gpu_utilized"
SYSTEM = (
    "timestamp processes utime stime cpu_usage memory_free memory_used memory_buffers memory_cached memory_active "
    "memory_inactive disk_read_bytes disk_write_bytes disk_space_total_gb disk_space_used_gb disk_space_free_gb "
    "net_recv_bytes net_sent_bytes gpu_usage gpu_vram gpu_utilized"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home, a data folder and a temporary folder that nobody else uses."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    return tmp_path


@pytest.fixture
def scratch(home: Path) -> Path:
    """Where temporary files go."""
    return home / "scratch"


def run_program(text: str, *arguments: str, timeout: float = 60) -> str:
    """Runs a program in an interpreter of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_with_mount(mount: str, text: str, *arguments: str) -> str:
    """The same in a view of the files of its own, after a `mount` there."""
    line = f'mount {mount} && exec "$@"'
    program = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", line, "sh", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Stalls:
    """For how long the machine let nobody run, as one sees who wants nothing but to wake up in time."""

    PROGRAM = """
        import select, sys, time
        stalled, before = 0, time.monotonic()
        while not select.select([sys.stdin], [], [], 0.005)[0]:
            now = time.monotonic()
            late = now - before - 0.005
            stalled += late if late > 0.03 else 0
            before = now
        print(stalled)
    """

    def __enter__(self) -> Stalls:
        watch = [sys.executable, "-c", textwrap.dedent(self.PROGRAM)]
        self._beside = subprocess.Popen(watch, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_: object) -> None:
        self.stalled_s = float(self._beside.communicate(b"end")[0])


#: With the folder for temporary files on a disk of its own, which 64 kB fill.
SMALL_DISK = '-t tmpfs -o size=64k small "$TMPDIR"'
