"""`method`: a sidecar process samples, and goes on when the host process is killed."""

from __future__ import annotations

import gc
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


def _sidecars() -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                state = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:
                continue
            home = os.environ["XDG_DATA_HOME"].encode()
            if b"sidecar" in words and state != "Z" and any(home in word for word in words):
                found.append(int(name))
    return found


def _sidecars_after_the_end() -> list[int]:
    """Sidecars that still run, after they had time to end."""
    deadline = time.monotonic() + 10
    while _sidecars() and time.monotonic() < deadline:
        time.sleep(0.01)
    return _sidecars()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_sidecar_records_what_a_thread_records(method: str) -> None:
    tracker = ResourceTracker(interval=0.1, method=method)
    assert tracker.running and tracker.method == method
    (sidecar,) = _sidecars()
    parent = int(Path(f"/proc/{sidecar}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert parent != os.getpid()
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    tracker.wait_for_samples(3)
    while_running = len(tracker.process_metrics)
    tracker.stop()
    assert not tracker.running and tracker.state == "stopped" and _sidecars() == []
    assert len(tracker.process_metrics) == tracker.n_samples > while_running
    assert set(tracker.process_metrics["children"]) == {0.0}, "the sidecar is not a child of the job"
    spent = sum(tracker.process_metrics["utime"]) + sum(tracker.process_metrics["stime"])
    assert 0.38 < spent < 0.8
    assert tracker.stats()["process_memory"]["max"] > 0
    assert ResourceTracker.loads(tracker.dumps()).stats() == tracker.stats()
    assert tracker.snapshot()["metadata"]["method"] == method
    tracker.cleanup()
    assert list((Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker").iterdir()) == []


def test_sidecar_can_record_only_the_machine() -> None:
    with ResourceTracker(interval=0.05, method="spawn", track_processes=False) as tracker:
        tracker.wait_for_samples(2)
    assert len(tracker.system_metrics) == tracker.n_samples >= 2


def test_error_of_the_sidecar_is_raised_in_the_host() -> None:
    with pytest.raises(ProcessLookupError, match="sidecar"):
        ResourceTracker(pid=2**22 - 1, method="spawn")


def test_host_samples_in_a_thread_if_the_sidecar_cannot_write(scratch: Path) -> None:
    # No file can be written, as on a full disk. The limit holds for the host too.
    program = """
        import logging, resource, sys
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with ResourceTracker(interval=0.02, method="spawn") as tracker:
            tracker.wait_for_samples(3)
        assert tracker.stats()["process_memory"]["max"] > 0
    """
    in_thread, no_tables = sorted(run_program(program).splitlines(), key=lambda line: "no tables" in line)
    assert in_thread.startswith("WARNING the sidecar did not start: cannot write `") and "in a thread" in in_thread
    assert no_tables.startswith("WARNING cannot write `")
    assert _sidecars() == [] and list(scratch.iterdir()) == []


@pytest.mark.parametrize("method", ["", "spawn"])
def test_rows_that_do_not_fit_on_the_disk_are_not_lost(method: str) -> None:
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
        # Rows of a thread are known at once, rows of a sidecar after the stop.
        assert known > 20 or tracker.method, known
        assert ResourceTracker.loads(tracker.dumps()).process_metrics["timestamp"] == rows
        assert tracker.stats()["timestamp"]["duration"] == rows[-1] - tracker.start_time
        stats = tracker.stats()
        tracker.cleanup()
        assert tracker.stats() == stats and len(tracker.process_metrics) == 0
        print(sorted(os.listdir(folder)))
    """
    said, left = run_with_mount(SMALL_DISK, program, method).splitlines()
    assert said.startswith("WARNING cannot write `") and "No space left" in said
    assert left == ("['fill', 'resource-tracker']" if method else "['fill']")


@pytest.mark.parametrize("on_broken_pipes", [signal.SIG_IGN, signal.SIG_DFL])
def test_sidecar_without_an_answer_is_a_warning(home: Path, on_broken_pipes: signal.Handlers) -> None:
    before = signal.signal(signal.SIGPIPE, on_broken_pipes)
    mute = home / "mute"
    mute.write_text("#!/bin/sh\n")
    mute.chmod(0o700)
    tracker = ResourceTracker(interval=0.02, method="spawn", autostart=False)
    session = _native.Session(sidecar=str(mute), **tracker._settings())
    try:
        session.start()
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert session.running
    session.stop()
    ((level, note),) = session.take_notes()
    assert level == "warning" and "it exited without an answer" in note


def test_host_without_the_command_samples_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from importlib import metadata

    monkeypatch.setattr(metadata, "files", lambda _: None)
    monkeypatch.setenv("PATH", "/no/such/folder")
    with ResourceTracker(interval=0.02, method="spawn") as tracker:
        tracker.wait_for_samples(2)
    assert len(tracker.process_metrics) == tracker.n_samples >= 2 and _sidecars() == []
    (record,) = (record for record in caplog.records if "in a thread" in record.getMessage())
    assert record.getMessage().startswith("cannot start the sidecar `resource-tracker`: No such file")


def test_signals_of_other_processes_do_not_stop_the_sidecar() -> None:
    tracker = ResourceTracker(interval=0.02, method="spawn")
    (sidecar,) = _sidecars()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A scheduler warns all processes of a job this way.
        subprocess.run(["kill", f"-{number.value}", str(sidecar)], check=True)
    tracker.wait_for_samples(tracker.n_samples + 5)
    assert tracker.state == "running"
    # A signal that is pending when the host stops its sidecar changes nothing.
    os.kill(sidecar, signal.SIGSTOP)
    subprocess.run(["kill", str(sidecar)], check=True)
    tracker.stop()
    assert tracker.state == "stopped" and _sidecars() == []


def test_halted_sidecar_can_be_stopped() -> None:
    tracker = ResourceTracker(interval=0.05, method="spawn")
    tracker.wait_for_samples(2)
    os.kill(_sidecars()[0], signal.SIGSTOP)
    tracker.stop()
    assert tracker.state == "stopped" and _sidecars() == []
    assert len(tracker.process_metrics) == tracker.n_samples > 2


def test_sidecar_that_follows_another_process_ends_with_its_host() -> None:
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
        assert len(_sidecars()) == 1
        host.terminate()
    assert _sidecars_after_the_end() == []
    other.kill()
    other.wait()


def test_sidecar_holds_no_descriptor_of_its_host() -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    os.set_blocking(reader, False)
    with ResourceTracker(interval=0.05, method="spawn"):
        os.close(writer)
        assert os.read(reader, 1) == b"", "the other end is closed"
    os.close(reader)


@pytest.mark.parametrize("way", ["ignored", "blocked"])
def test_host_that_ignores_or_blocks_signals_can_stop_its_sidecar(way: str, caplog: pytest.LogCaptureFixture) -> None:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM] if way == "blocked" else [])
    action = signal.signal(signal.SIGTERM, signal.SIG_IGN if way == "ignored" else signal.SIG_DFL)
    try:
        tracker = ResourceTracker(interval=0.05, method="spawn")
        tracker.wait_for_samples(1)
        tracker.stop()
    finally:
        signal.signal(signal.SIGTERM, action)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert tracker.state == "stopped" and _sidecars() == [] and caplog.text == ""


def test_subreaper_host_has_no_child_left() -> None:
    # Process 1 of a container gets orphans in the same way.
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


@pytest.mark.skipif(os.getuid() != 0, reason="only root may change its user")
def test_host_that_changed_its_user_stops_a_sidecar_that_saves_the_recording(home: Path) -> None:
    program = """
        import logging, os, sys, time
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        tracker = ResourceTracker(interval=0.02, method="spawn")
        tracker.wait_for_samples(3)
        os.setuid(65534)
        began = time.monotonic()
        tracker.stop()
        assert time.monotonic() - began < 4, "timed out"
        assert tracker.state == "stopped" and not tracker.running and tracker.n_samples >= 3
    """
    text = run_program(program)
    assert text.startswith("this program has no permission to read its recording any more; it is saved"), text
    assert _sidecars() == []
    (entry,) = (home / "data" / "resource-tracker").glob("*.run")
    assert entry.stem in text and json.loads(entry.read_text())["status"] == "detached"
    assert list(entry.parent.glob("*.journal")) == []


@pytest.mark.parametrize("options", ["", ", track_processes=False"])
def test_recording_of_a_killed_host_is_saved_in_the_history(options: str) -> None:
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
            assert len(_sidecars()) == 1
            time.sleep(0.25)
            killed_at = time.time()
            os.kill(host.pid, signal.SIGKILL)
        data = Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker"
        deadline = time.monotonic() + 20
        while (_sidecars() or not list(data.glob("*.run"))) and time.monotonic() < deadline:
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
    # The last row is at the end of the host.
    assert len(rows) >= 7 and killed_at - 0.001 < rows[-1] < killed_at + 0.2 + machine.stalled_s
    assert sum(moment > killed_at for moment in rows) <= 2
    listed = subprocess.run([_command(), "list"], stdout=subprocess.PIPE, text=True, check=True).stdout
    assert entry.stem in listed and "killed" in listed, listed


def test_notes_of_the_sidecar_reach_the_host(caplog: pytest.LogCaptureFixture) -> None:
    # Python ignores SIGXFSZ, and its children inherit this: a row beyond the limit is an error, as on a full disk.
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, limits[1]))
    try:
        # This interval gives so few rows that the final report has room for all rows that are not written.
        tracker = ResourceTracker(interval=0.05, method="spawn")
        journal = next((Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker").glob("*.journal"))
        deadline = time.monotonic() + 20
        while journal.stat().st_size < 15_000 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(1)  # more rows, beyond the limit
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with caplog.at_level("WARNING", logger="resource_tracker"):
        tracker.stop()
    # Only this note: a process of another test may add a note, since it is in the same session and process group.
    about = [record.name for record in caplog.records if str(journal) in record.getMessage()]
    assert about == ["resource_tracker"], caplog.text
    assert any(str(journal) in note for note in tracker.snapshot()["run"]["notes"])
    tracker.cleanup()
    assert list(journal.parent.iterdir()) == []


def test_killed_sidecar_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tracker = ResourceTracker(interval=0.05, method="spawn")
    tracker.wait_for_samples(2)
    (sidecar,) = _sidecars()
    os.kill(sidecar, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while tracker.running and time.monotonic() < deadline:
        time.sleep(0.005)
    with caplog.at_level("WARNING", logger="resource_tracker"):
        tracker.stop()
    assert "the sidecar was killed" in caplog.text
    assert tracker.n_samples >= 2


def _command() -> str:
    from resource_tracker.tracker import _sidecar

    return _sidecar()


def test_command_of_the_wheel_is_used() -> None:
    import sysconfig

    assert os.path.realpath(_command()) == os.path.realpath(
        os.path.join(sysconfig.get_path("scripts"), "resource-tracker")
    )


def test_sidecar_has_descriptors_when_its_host_has_none() -> None:
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


def test_end_of_the_followed_process_is_the_end_of_the_recording() -> None:
    with subprocess.Popen(["sleep", "0.3"]) as followed:
        tracker = ResourceTracker(pid=followed.pid, interval=0.05, method="spawn")
        assert tracker.state == "running"
    assert _sidecars_after_the_end() == []
    assert tracker.state == "exited" and not tracker.running
    rows = tracker.n_samples
    tracker.stop()
    assert tracker.state == "exited" and tracker.n_samples == rows >= 2


def test_host_that_closed_the_socket_leaves_its_recording_to_the_history(home: Path) -> None:
    # The numbers of closed descriptors are reused: nothing may be written to these files.
    program = """
        import logging, os, sys, time
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        tracker = ResourceTracker(interval=0.02, method="spawn")
        tracker.wait_for_samples(3)
        os.closerange(3, 256)
        files = [os.open(f"{sys.argv[1]}/{number}", os.O_RDWR | os.O_CREAT) for number in range(64)]
        assert tracker.running
        tracker.stop()
        assert tracker.state == "stopped" and len(tracker.process_metrics) >= 3
        tracker.cleanup()
        print([os.fstat(file).st_size for file in files] == [0] * 64)
    """
    folder = home / "files"
    folder.mkdir()
    note, files_are_empty = run_program(program, str(folder)).splitlines()
    assert note.startswith("this program closed the sidecar's socket; the sidecar cannot be stopped")
    assert files_are_empty == "True"
    assert _sidecars_after_the_end() == []
    (entry,) = (home / "data" / "resource-tracker").glob("*.run")
    assert json.loads(entry.read_text())["status"] == "finished"


def test_forked_child_of_a_killed_host_does_not_keep_the_sidecar_running(home: Path) -> None:
    program = """
        import os, time
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, method="spawn")
        tracker.wait_for_samples(2)
        child = os.fork()
        if child == 0:
            time.sleep(60)
        print(child, flush=True)
        time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE) as host:
        assert host.stdout is not None
        child = int(host.stdout.readline())
        host.kill()
    try:
        assert _sidecars_after_the_end() == []
        (entry,) = (home / "data" / "resource-tracker").glob("*.run")
        assert json.loads(entry.read_text())["status"] == "killed"
    finally:
        os.kill(child, signal.SIGKILL)


def test_forked_child_does_not_stop_the_sidecar() -> None:
    tracker = ResourceTracker(interval=0.05, method="spawn")
    tracker.wait_for_samples(1)
    for ending in ("stop", "cleanup", "del"):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                assert not tracker.running and tracker.n_samples >= 1
                if ending == "del":
                    del tracker
                    gc.collect()
                else:
                    getattr(tracker, ending)()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, ending
        assert tracker.running and len(_sidecars()) == 1, ending
    tracker.wait_for_samples(tracker.n_samples + 2)
    tracker.stop()
    assert tracker.state == "stopped" and _sidecars() == []


def test_host_that_executes_another_program_is_recorded_to_its_end(home: Path) -> None:
    program = """
        import os
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05, method="spawn")
        tracker.wait_for_samples(2)
        os.execvp("sleep", ["sleep", "0.5"])
    """
    run_program(program)
    assert _sidecars_after_the_end() == []
    data = home / "data" / "resource-tracker"
    (entry,) = data.glob("*.run")
    assert json.loads(entry.read_text())["status"] == "finished"
    (recording,) = data.glob("*.json.gz")
    assert ResourceTracker.load(recording).stats()["timestamp"]["duration"] > 0.5
