"""`method`: a process of its own that records on when its host is killed."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from conftest import SMALL_DISK, Stalls, run_program, run_with_mount
from resource_tracker import ResourceTracker, _native


def _companions() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                state = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            home = os.environ["XDG_DATA_HOME"].encode()
            if b"companion" in words and state != "Z" and any(home in word for word in words):
                found.append(int(name))
    return found


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_companion_does_all_that_a_thread_does(method: str) -> None:
    tracker = ResourceTracker(interval=0.1, method=method)
    assert tracker.running and tracker.method == method
    (companion,) = _companions()
    parent = int(Path(f"/proc/{companion}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert parent != os.getpid()
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    tracker.wait_for_samples(3)
    while_running = len(tracker.process_metrics)
    tracker.stop()
    assert not tracker.running and tracker.state == "stopped" and _companions() == []
    assert len(tracker.process_metrics) == tracker.n_samples > while_running
    assert set(tracker.process_metrics["children"]) == {0.0}, "the companion is no child of the job"
    spent = sum(tracker.process_metrics["utime"]) + sum(tracker.process_metrics["stime"])
    assert 0.38 < spent < 0.8
    assert tracker.stats()["process_memory"]["max"] > 0
    assert ResourceTracker.loads(tracker.dumps()).stats() == tracker.stats()
    assert tracker.snapshot()["metadata"]["method"] == method
    tracker.cleanup()
    assert list((Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker").iterdir()) == []


def test_a_companion_may_record_the_machine_alone() -> None:
    with ResourceTracker(interval=0.05, method="spawn", track_processes=False) as tracker:
        tracker.wait_for_samples(2)
    assert len(tracker.system_metrics) == tracker.n_samples >= 2


def test_an_error_of_the_companion_is_the_hosts_to_hear() -> None:
    with pytest.raises(ProcessLookupError, match="companion"):
        ResourceTracker(pid=2**22 - 1, method="spawn")


def test_a_host_whose_companion_can_write_nothing_samples_by_itself(scratch: Path) -> None:
    # As on a full disk, for the host too.
    program = """
        import logging, resource, sys
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with ResourceTracker(interval=0.02, method="spawn") as tracker:
            tracker.wait_for_samples(3)
        assert tracker.stats()["process_memory"]["max"] > 0
    """
    by_itself, no_tables = sorted(run_program(program).splitlines(), key=lambda line: "no tables" in line)
    assert by_itself.startswith("WARNING the companion did not start: cannot write `") and "a thread" in by_itself
    assert no_tables.startswith("WARNING cannot write `")
    assert _companions() == [] and list(scratch.iterdir()) == []


@pytest.mark.parametrize("method", ["", "spawn"])
def test_rows_for_which_a_disk_has_no_room_are_not_lost(method: str) -> None:
    program = """
        import logging, os, sys, time
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
        folder = os.environ["XDG_DATA_HOME"] = os.environ["TMPDIR"]
        tracker = ResourceTracker(interval=0.02, method=sys.argv[1] or None)
        tracker.wait_for_samples(3)
        with open(f"{folder}/fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x")
            except OSError:
                pass
        if tracker.method:
            time.sleep(1)
        else:
            tracker.wait_for_samples(25)
        known = len(tracker.process_metrics)
        tracker.stop()
        rows = tracker.process_metrics["timestamp"]
        assert len(rows) == tracker.n_samples > known, (len(rows), tracker.n_samples, known)
        # A thread's are known at once.
        assert known > 20 or tracker.method, known
        assert ResourceTracker.loads(tracker.dumps()).process_metrics["timestamp"] == rows
        assert tracker.stats()["timestamp"]["duration"] == rows[-1] - tracker.start_time
        stats = tracker.stats()
        tracker.cleanup()
        assert tracker.stats() == stats and len(tracker.process_metrics) == 0
        ours = f"resource-tracker-{os.getpid()}-"
        assert not [name for name in os.listdir("/dev/shm") + os.listdir("/tmp") if name.startswith(ours)]
        print(sorted(os.listdir(folder)))
    """
    said, left = run_with_mount(SMALL_DISK, program, method).splitlines()
    assert said.startswith("WARNING cannot write `") and "No space left" in said
    assert left == ("['fill', 'resource-tracker']" if method else "['fill']")


@pytest.mark.parametrize("on_broken_pipes", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_companion_that_does_not_answer_costs_a_warning(home: Path, on_broken_pipes: signal.Handlers) -> None:
    before = signal.signal(signal.SIGPIPE, on_broken_pipes)
    mute = home / "mute"
    mute.write_text("#!/bin/sh\n")
    mute.chmod(0o700)
    tracker = ResourceTracker(interval=0.02, method="spawn", autostart=False)
    session = _native.Session(companion=str(mute), **tracker._settings())
    try:
        session.start()
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert session.running
    session.stop()
    ((level, note),) = session.take_notes()
    assert level == "warning" and "it ended without a word" in note
    missing = _native.Session(companion=str(home / "missing"), **tracker._settings())
    with pytest.raises(RuntimeError, match="missing"):
        missing.start()


def test_a_companion_is_stopped_by_nobody_but_its_host() -> None:
    tracker = ResourceTracker(interval=0.02, method="spawn")
    (companion,) = _companions()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # As a scheduler does, to all processes of a job that may have something to save.
        subprocess.run(["kill", f"-{number.value}", str(companion)], check=True)
    tracker.wait_for_samples(tracker.n_samples + 5)
    assert tracker.state == "running"
    # One that waits there while ours is sent takes it with it.
    os.kill(companion, signal.SIGSTOP)
    subprocess.run(["kill", str(companion)], check=True)
    tracker.stop()
    assert tracker.state == "stopped" and _companions() == []


def test_a_companion_that_was_halted_hears_of_the_stop() -> None:
    tracker = ResourceTracker(interval=0.05, method="spawn")
    tracker.wait_for_samples(2)
    os.kill(_companions()[0], signal.SIGSTOP)
    tracker.stop()
    assert tracker.state == "stopped" and _companions() == []
    assert len(tracker.process_metrics) == tracker.n_samples > 2


def test_a_companion_of_two_processes_ends_with_either() -> None:
    other = subprocess.Popen(["sleep", "60"])
    program = """
        import sys, time
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(pid=int(sys.argv[1]), interval=0.05, method="spawn")
        print("up", flush=True)
        time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(other.pid)], stdout=subprocess.PIPE
    ) as host:
        assert host.stdout is not None and host.stdout.readline() == b"up\n"
        (companion,) = _companions()
        subprocess.run(["kill", str(companion), str(host.pid)], check=True)
    deadline = time.monotonic() + 10
    while _companions() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert _companions() == [], "a stop for all is one for it"
    other.kill()
    other.wait()


def test_a_companion_holds_no_descriptor_of_its_hosts() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    os.set_blocking(reader, False)
    with ResourceTracker(interval=0.05, method="spawn"):
        os.close(writer)
        assert os.read(reader, 1) == b"", "nobody has the other end any more"
    os.close(reader)


@pytest.mark.parametrize("way", ["ignored", "blocked"])
def test_a_companion_can_be_stopped_whatever_its_host_does_with_signals(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM] if way == "blocked" else [])
    action = signal.signal(signal.SIGTERM, signal.SIG_IGN if way == "ignored" else signal.SIG_DFL)
    try:
        tracker = ResourceTracker(interval=0.05, method="spawn")
        tracker.wait_for_samples(1)
        tracker.stop()
    finally:
        signal.signal(signal.SIGTERM, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert tracker.state == "stopped" and _companions() == [] and caplog.text == ""


def test_a_host_that_orphans_come_to_keeps_none_of_ours() -> None:
    # As process 1 of a container does.
    program = """
        import ctypes, os
        from resource_tracker import ResourceTracker
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        with ResourceTracker(interval=0.02, method="spawn") as tracker:
            tracker.wait_for_samples(1)
            assert os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG) is None, "a child that runs"
        assert set(tracker.process_metrics["children"]) == {0.0}
        try:
            os.wait()
        except ChildProcessError:
            print("no child")
    """
    assert run_program(program) == "no child\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only the administrator may become somebody else")
def test_a_host_that_has_become_somebody_else_leaves_its_recording_to_the_history(home: Path) -> None:
    program = """
        import logging, os, sys, time
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        tracker = ResourceTracker(interval=0.02, method="spawn")
        tracker.wait_for_samples(3)
        os.setuid(65534)
        began = time.monotonic()
        tracker.stop()
        assert time.monotonic() - began < 4, "waited in vain"
        assert tracker.state == "stopped" and not tracker.running and tracker.n_samples >= 3
    """
    assert run_program(program).startswith("the companion cannot be stopped: Operation not permitted")
    deadline = time.monotonic() + 10
    while _companions() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(list((home / "data" / "resource-tracker").glob("*.run"))) == 1


@pytest.mark.parametrize("options", ["", ", track_processes=False"])
def test_what_was_recorded_until_the_host_was_killed_is_in_the_history(options: str) -> None:
    program = f"""
        import sys, time
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.1, method="spawn"{options})
        tracker.wait_for_samples(6)
        print("ready", flush=True)
        while True:
            sum(range(10000))
    """
    with Stalls() as machine:
        with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as host:
            assert host.stdout is not None and host.stdout.readline() == b"ready\n"
            assert len(_companions()) == 1
            time.sleep(0.25)
            killed_at = time.time()
            os.kill(host.pid, signal.SIGKILL)
        data = Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker"
        deadline = time.monotonic() + 20
        while (_companions() or not list(data.glob("*.run"))) and time.monotonic() < deadline:
            time.sleep(0.01)
    (entry,) = data.glob("*.run")
    assert json.loads(entry.read_text())["status"] == "killed"
    (recording,) = data.glob("*.json.gz")
    assert list(data.glob("*.journal")) == []
    with gzip.open(recording) as file:
        snapshot = json.load(file)
    assert snapshot["run"]["signal"] == 9
    assert any("killed by signal 9" in note for note in snapshot["run"]["notes"])
    loaded = ResourceTracker.load(recording)
    rows = loaded.system_metrics["timestamp"]
    # It saw the end, and went on for no more than the row that it was at.
    assert len(rows) >= 7 and killed_at - 0.001 < rows[-1] < killed_at + 0.2 + machine.stalled_s
    assert sum(moment > killed_at for moment in rows) <= 2
    listed = subprocess.run([_command(), "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert entry.stem in listed and "killed" in listed, listed


def test_what_goes_wrong_in_the_companion_reaches_its_host(caplog: pytest.LogCaptureFixture) -> None:
    # Python ignores SIGXFSZ, and so does what it starts: a row too many is an error like that of a full disk.
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, limits[1]))
    try:
        # So few rows that all of them have room in the recording, however long this takes.
        tracker = ResourceTracker(interval=0.05, method="spawn")
        journal = next((Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker").glob("*.journal"))
        deadline = time.monotonic() + 20
        while journal.stat().st_size < 15_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(1)  # some rows more, for which there is no room
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with caplog.at_level("WARNING", logger="resource_tracker"):
        tracker.stop()
    assert [record.name for record in caplog.records] == ["resource_tracker"], caplog.text
    assert str(journal) in caplog.text
    assert any(str(journal) in note for note in tracker.snapshot()["run"]["notes"])
    tracker.cleanup()
    assert list(journal.parent.iterdir()) == []


def test_a_companion_that_was_killed_is_spoken_of(caplog: pytest.LogCaptureFixture) -> None:
    tracker = ResourceTracker(interval=0.05, method="spawn")
    tracker.wait_for_samples(2)
    (companion,) = _companions()
    os.kill(companion, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while tracker.running and time.monotonic() < deadline:
        time.sleep(0.005)
    with caplog.at_level("WARNING", logger="resource_tracker"):
        tracker.stop()
    assert "the companion was killed" in caplog.text
    assert tracker.n_samples >= 2


def _command() -> str:
    from resource_tracker.tracker import _companion

    return _companion()


def test_the_command_in_the_wheel_is_the_one_that_is_used() -> None:
    import sysconfig

    assert os.path.realpath(_command()) == os.path.realpath(
        os.path.join(sysconfig.get_path("scripts"), "resource-tracker")
    )


def test_a_companion_has_descriptors_where_its_host_has_none() -> None:
    program = """
        import logging, os, resource, signal, subprocess, time
        logging.basicConfig(level=logging.WARNING)
        from resource_tracker import ResourceTracker
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, most))
        tracker = ResourceTracker(interval=0.1, method="spawn")
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        held = bytearray(200 << 20)
        time.sleep(0.5)
        was_running = tracker.running
        for descriptor in taken:
            os.close(descriptor)
        tracker.stop()
        print(was_running, tracker.state, tracker.stats()["process_memory"]["max"] > 200 * 1024)
    """
    assert run_program(program) == "True stopped True\n"
