"""Shared by all tests: a separate home folder, no network, and programs run in separate processes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from resource_tracker import ResourceTracker

os.environ["RESOURCE_TRACKER_OFFLINE"] = "1"

#: Columns of the two tables.
PROCESS = "timestamp pid children utime stime cpu_usage memory read_bytes write_bytes gpu_usage gpu_vram gpu_utilized"
SYSTEM = (
    "timestamp processes utime stime cpu_usage memory_free memory_used memory_buffers memory_cached memory_active "
    "memory_inactive disk_read_bytes disk_write_bytes disk_space_total_gb disk_space_used_gb disk_space_free_gb "
    "net_recv_bytes net_sent_bytes gpu_usage gpu_vram gpu_utilized"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Home, data and temporary folders of this test alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    return tmp_path


@pytest.fixture
def scratch(home: Path) -> Path:
    """The temporary folder."""
    return home / "scratch"


def run_program(text: str, *arguments: str, timeout: float = 60) -> str:
    """Run a program in a new interpreter and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_with_mount(mount: str, text: str, *arguments: str) -> str:
    """Run a program like `run_program`, in a mount namespace with one more mount."""
    line = f'mount {mount} && exec "$@"'
    program = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", line, "sh", *program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Stalls:
    """Measures how long the machine ran no process at all, by a process that only sleeps and wakes up."""

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


#: Mounts a file system of 64 kB on the temporary folder.
SMALL_DISK = '-t tmpfs -o size=64k small "$TMPDIR"'

#: CPU time of the thread that did the recorded work, and of all threads of the process. The tracker has threads too:
#: one samples, and one finds the cloud.
SPENT: list[tuple[float, float]] = []


@pytest.fixture(scope="module")
def recorded() -> Iterator[ResourceTracker]:
    """A recording of at least half a second of work and five rows."""
    tracker = ResourceTracker(interval=0.1)
    before = time.thread_time(), time.process_time()
    end = time.monotonic() + 0.5
    while time.monotonic() < end or tracker.n_samples < 5:
        sum(range(1000))
    SPENT.append((time.thread_time() - before[0], time.process_time() - before[1]))
    tracker.stop()
    yield tracker
    tracker.cleanup()
