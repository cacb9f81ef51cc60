"""In-process mode: file descriptors of the host stay untouched, and the tracker needs few."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from conftest import run_program, run_with_mount

#: Prints how many descriptors running trackers keep open between samples, and the CPU source.
DESCRIPTORS = """
import os, sys, threading, time
from resource_tracker import ResourceTracker

def descriptors():
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            pass
    return found

stop = threading.Event()
for _ in range(int(sys.argv[1])):
    threading.Thread(target=stop.wait).start()
before = set(descriptors())
trackers = [ResourceTracker(interval=1, discover_cloud=False) for _ in range(int(sys.argv[2]))]
trackers[0].wait_for_samples(1)
kept = len(trackers) * 1000
for _ in range(50):
    # `os.listdir` itself has `/proc/self/fd` open.
    ours = {number: link for number, link in descriptors().items() if number not in before and "/fd" not in link}
    # The smallest number: each of the sampler threads has another file open while it reads.
    kept = min(kept, len(ours))
    assert not any("perf_event" in link and os.get_inheritable(number) for number, link in ours.items())
    time.sleep(0.002)
for tracker in trackers:
    tracker.stop()
stop.set()
print(kept, trackers[0]._session.cpu_source)
"""


@pytest.mark.parametrize("threads, trackers, source", [(8, 1, "perf"), (40, 1, "perf in part"), (0, 30, "perf")])
def test_tracker_keeps_few_descriptors_and_none_is_inherited(threads: int, trackers: int, source: str) -> None:
    kept, found = run_program(DESCRIPTORS, str(threads), str(trackers)).split(" ", 1)
    assert min(threads, 8) < int(kept) <= 12
    assert found == f"{source}\n"


def test_host_without_free_descriptors_is_measured_correctly() -> None:
    program = """
        import os, resource, time
        from resource_tracker import ResourceTracker

        while time.process_time() < 1:
            pass
        held = bytearray(600 << 20)
        del held
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        spent = time.process_time()
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(3)
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        tracker.wait_for_samples(tracker.n_samples + 4)
        for descriptor in taken:
            os.close(descriptor)
        tracker.wait_for_samples(tracker.n_samples + 4)
        tracker.stop()
        spent = time.process_time() - spent
        rows = tracker.process_metrics
        counted = sum(seconds for name in ("utime", "stime") for seconds in rows[name] if seconds is not None)
        print(counted - spent, tracker.state, len(rows) >= 11, tracker.stats()["process_memory"]["max"] / 1024)
    """
    beyond, state, has_all, memory = run_program(program).split()
    # CPU time and memory from before the start are not in the recording, and no process has ended.
    assert float(beyond) < 0.1 and (state, has_all) == ("stopped", "True") and float(memory) < 100


@pytest.mark.parametrize("limit", range(6))
@pytest.mark.parametrize("method", ["", "spawn"])
def test_host_that_may_open_no_file_does_not_fail(limit: int, method: str) -> None:
    program = """
        import logging, resource, sys
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), most))
        with ResourceTracker(interval=0.02, method=sys.argv[2] or None) as tracker:
            pass
        tracker.cleanup()
        rows, state = tracker.n_samples, tracker.state
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        if state is None:
            with tracker:
                tracker.wait_for_samples(2)
            assert tracker.stats()["process_memory"]["max"] > 0
        print(rows, state)
    """
    *warnings, ending = run_program(program, str(limit), method).splitlines()
    assert all(warning.startswith("WARNING ") for warning in warnings)
    if limit <= 3:
        assert ending == "0 None" and "Too many open files" in warnings[0]
        assert all(warning.endswith("; nothing is recorded") for warning in warnings if "sidecar" not in warning)


def test_closed_and_reused_descriptors_are_never_read_or_written(tmp_path: Path) -> None:
    program = """
        import os, sys, time
        from resource_tracker import ResourceTracker
        # A long interval: `closerange` must not close a file that the tracker is reading.
        tracker = ResourceTracker(interval=0.2)
        tracker.wait_for_samples(3)
        os.closerange(3, 4096)
        # Reuse every descriptor of the tracker for files, eventfds and a pipe, which a stray read would empty.
        files = [os.open(f"{sys.argv[1]}/{n}", os.O_RDWR | os.O_CREAT) for n in range(8)]
        for fd in files:
            os.write(fd, b"the host's")
            os.lseek(fd, 0, 0)
        events = [os.eventfd(7, os.EFD_NONBLOCK) for _ in range(8)] if hasattr(os, "eventfd") else []
        reader, writer = os.pipe()
        os.write(writer, b"x" * 64)
        samples = tracker.n_samples
        tracker.wait_for_samples(samples + 20, timeout=60)
        tracker.stop()
        del tracker
        import gc; gc.collect()
        for n, fd in enumerate(files):
            assert os.lseek(fd, 0, 1) == 0, "read from"
            assert os.pread(fd, 64, 0) == b"the host's", "written into"
        assert all(os.eventfd_read(event) == 7 for event in events), "emptied"
        assert os.read(reader, 64) == b"x" * 64
        print("whole")
    """
    assert run_program(program, str(tmp_path)) == "whole\n"


def test_stop_works_without_free_descriptors() -> None:
    program = """
        import os, resource, sys
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, discover_cloud=False)
        tracker.wait_for_samples(1)
        assert "logging" not in sys.modules
        resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
        try:
            while True:
                os.open("/dev/null", os.O_RDONLY)
        except OSError:
            tracker.stop()
        print(tracker.state)
    """
    assert run_program(program) == "stopped\n"


def test_cloud_discovery_does_not_touch_descriptors_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
        import os, sys, time
        from resource_tracker import ResourceTracker
        # No sample before the end: `closerange` must not close a file that the tracker is reading.
        tracker = ResourceTracker(interval=3600, track_processes=False)
        time.sleep(0.2)
        assert tracker.cloud_info is None, "discovery is still running"
        paths = [f"/proc/self/fd/{fd}" for fd in range(3, 64)]
        assert not any("socket" in os.readlink(path) for path in paths if os.path.lexists(path))
        os.closerange(3, 4096)
        files = [os.open(f"{sys.argv[1]}/{n}", os.O_RDWR | os.O_CREAT) for n in range(40)]
        while tracker.cloud_info is None:
            time.sleep(0.05)
        tracker.stop()
        assert all(os.write(fd, b"x") == 1 for fd in files)
        print(tracker.cloud_info["discovery_time"] > 0.5)
    """
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        monkeypatch.delenv("RESOURCE_TRACKER_OFFLINE")
        monkeypatch.setenv("RESOURCE_TRACKER_METADATA_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        # An empty /sys hides the firmware tables, which could name a cloud.
        assert run_with_mount("-t tmpfs none /sys", program, str(tmp_path)) == "True\n"


def test_memory_is_unknown_while_no_file_can_be_opened() -> None:
    program = """
        import os, resource
        from resource_tracker import ResourceTracker
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        tracker = ResourceTracker(interval=0.1)
        tracker.wait_for_samples(2)
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        held = bytearray(200 << 20)
        tracker.wait_for_samples(tracker.n_samples + 4)
        del held
        for descriptor in taken:
            os.close(descriptor)
        tracker.wait_for_samples(tracker.n_samples + 3)
        tracker.stop()
        memory = tracker.process_metrics["memory"]
        print(memory[0] > 0, None in memory, memory[-1] > 0)
    """
    assert run_program(program) == "True True True\n"


def test_tracker_does_not_occupy_closed_standard_streams(tmp_path: Path) -> None:
    program = """
        import os, sys, time
        from resource_tracker import ResourceTracker

        def taken():
            places = set()
            for number in range(3):
                try:
                    os.fstat(number)
                    places.add(number)
                except OSError:
                    pass
            return places

        os.closerange(0, 3)
        tracker = ResourceTracker(interval=60)
        stay = {0, 1, 2}
        for _ in range(50):
            # A file that is open only for a moment may have any number.
            stay &= taken()
            time.sleep(0.01)
        source = tracker._session.cpu_source
        with open(sys.argv[1], "w") as file:
            file.write(f"{sorted(stay)} {source}")
    """
    run_program(program, str(tmp_path / "seen"))
    assert (tmp_path / "seen").read_text() == "[] perf"
