"""A guest in somebody's process: what the host forks, closes, handles and forgets stays its own."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import SMALL_DISK, Stalls, run_program, run_with_mount
from resource_tracker import ResourceTracker

#: The sampling thread's name, as far as the kernel keeps it.
SAMPLER = "resource-tracke"


def _threads() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # One that has just ended has no name any more.
        with contextlib.suppress(OSError):
            found.add((task / "comm").read_text().strip())
    return found


def test_garbage_collection_leaves_no_thread_no_process_and_no_file(scratch: Path) -> None:
    descriptors = set(os.listdir("/proc/self/fd"))
    for method in (None, "spawn"):
        tracker = ResourceTracker(interval=0.05, method=method)
        tracker.wait_for_samples(1)
        assert (SAMPLER in _threads()) == (method is None)
        del tracker
        gc.collect()
        assert SAMPLER not in _threads()
        assert list(scratch.iterdir()) == []
        assert set(os.listdir("/proc/self/fd")) <= descriptors | {"0"}
    data = Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker"
    assert [path.name for path in data.iterdir()] == []


#: Looks at its own descriptors while trackers run; says how many there are of ours at the most, by which counter.
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
trackers = [ResourceTracker(interval=0.05, discover_cloud=False) for _ in range(int(sys.argv[2]))]
trackers[0].wait_for_samples(1)
most = 0
for _ in range(50):
    # The one that lists them is there while it lists.
    ours = {number: link for number, link in descriptors().items() if number not in before and "/fd" not in link}
    most = max(most, len(ours))
    assert not any("perf_event" in link and os.get_inheritable(number) for number, link in ours.items())
    time.sleep(0.002)
for tracker in trackers:
    tracker.stop()
stop.set()
print(most, trackers[0]._session.cpu_source)
"""


@pytest.mark.parametrize("threads, trackers, source", [(8, 1, "perf"), (40, 1, "perf in part"), (0, 30, "perf")])
def test_few_descriptors_of_a_host_are_ours_and_none_is_inherited(threads: int, trackers: int, source: str) -> None:
    most, found = run_program(DESCRIPTORS, str(threads), str(trackers)).split(" ", 1)
    assert min(threads, 8) < int(most) <= 16
    assert found == f"{source}\n"


def test_a_host_without_a_free_descriptor_is_measured_as_it_is() -> None:
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
    # What was spent and held before is not the recording's, and nobody has ended.
    assert float(beyond) < 0.1 and (state, has_all) == ("stopped", "True") and float(memory) < 100


def test_closed_and_reused_descriptors_are_never_read_or_written(tmp_path: Path) -> None:
    program = """
        import os, sys, time
        from resource_tracker import ResourceTracker
        # A moment between readings: a file that is being read would be closed under us.
        tracker = ResourceTracker(interval=0.2)
        tracker.wait_for_samples(3)
        os.closerange(3, 4096)
        # Every number that was ours is the host's now: files, an eventfd and a pipe that a stray read would empty.
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


def test_a_host_without_a_free_descriptor_can_stop() -> None:
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


def test_looking_for_the_cloud_opens_and_closes_nothing_of_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
        import os, sys, time
        from resource_tracker import ResourceTracker
        # No reading before the end: a file that is being read would be closed under us.
        tracker = ResourceTracker(interval=3600, track_processes=False)
        time.sleep(0.2)
        assert tracker.cloud_info is None, "nobody is waited for any more"
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
        # A machine whose firmware says nothing.
        assert run_with_mount("-t tmpfs none /sys", program, str(tmp_path)) == "True\n"


def test_a_proc_of_another_pid_namespace_is_an_error_and_no_strangers_figures() -> None:
    program = textwrap.dedent("""
        from resource_tracker import ResourceTracker
        from resource_tracker.tracker_procfs import get_process_stats
        from resource_tracker.tracker_psutil import get_process_stats as get_portable_stats

        for look in (ResourceTracker, lambda: ResourceTracker(method="spawn"), get_process_stats, get_portable_stats):
            try:
                look()
            except Exception as error:
                print("`/proc` is not of this PID namespace" in str(error))
    """)
    command = ["unshare", "--map-root-user", "--pid", "--fork", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n" * 4, done.stdout + done.stderr


def test_many_threads_may_use_one_tracker() -> None:
    tracker = ResourceTracker(interval=0.005)
    errors: list[BaseException] = []

    def look() -> None:
        try:
            for _ in range(30):
                assert tracker.n_samples >= 0
                assert len(tracker.process_metrics) >= 0
                if tracker.n_samples:
                    tracker.stats()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(6)]
    for thread in threads:
        thread.start()
    tracker.wait_for_samples(5)
    stoppers = [threading.Thread(target=tracker.stop) for _ in range(3)]
    for thread in stoppers:
        thread.start()
    for thread in threads + stoppers:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert errors == []


def test_a_tracker_may_be_made_in_any_thread() -> None:
    done: list[int] = []

    def work() -> None:
        with ResourceTracker(interval=0.05) as tracker:
            tracker.wait_for_samples(1)
        done.append(tracker.n_samples)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert done and done[0] >= 1


def test_signals_go_to_the_host() -> None:
    program = """
        import os, signal, time
        from resource_tracker import ResourceTracker
        handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(1)
        assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}
        masks = []
        for task in os.listdir("/proc/self/task"):
            try:
                status = dict(line.split(":", 1) for line in open(f"/proc/self/task/{task}/status"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has just ended
            if status["Name"].strip() == "resource-tracke":
                masks.append(int(status["SigBlk"], 16))
        # SIGKILL, SIGSTOP and the C library's own two cannot be blocked.
        assert masks and all(mask | 0x1_8004_0100 == 0xffffffffffffffff for mask in masks), [hex(m) for m in masks]
        class Alarm(Exception): pass
        def ring(*_): raise Alarm
        signal.signal(signal.SIGALRM, ring)
        before = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            time.sleep(10)
        except Alarm:
            print(time.monotonic() - before)
    """
    with Stalls() as machine:
        woken_after = float(run_program(program))
    assert woken_after < 2 + machine.stalled_s


def test_the_host_is_no_subreaper_and_its_children_are_its_own() -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    child = os.fork()
    if child == 0:
        os._exit(7)
    for method in (None, "spawn"):
        with ResourceTracker(interval=0.05, method=method) as tracker:
            tracker.wait_for_samples(2)
            flag = ctypes.c_int(-1)
            assert libc.prctl(37, ctypes.byref(flag), 0, 0, 0) == 0  # PR_GET_CHILD_SUBREAPER
            assert flag.value == 0
    # Ended long ago, and nobody but us has waited for it.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_interpreters_end_is_not_held_up(scratch: Path) -> None:
    program = """
        from resource_tracker import ResourceTracker
        for method in (None, "spawn"):
            globals()[str(method)] = ResourceTracker(interval=60, method=method)
        print("end")
    """
    before = time.monotonic()
    assert run_program(program) == "end\n"
    assert time.monotonic() - before < 5
    assert list(scratch.iterdir()) == []
    data = Path(os.environ["XDG_DATA_HOME"]) / "resource-tracker"
    assert [path.name for path in data.iterdir()] == []


def test_an_exception_in_the_host_leaves_no_file(scratch: Path) -> None:
    program = "from resource_tracker import ResourceTracker; t = ResourceTracker(); raise SystemExit(3)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 3
    assert list(scratch.iterdir()) == []


def test_a_sub_interpreter_says_clearly_what_is_wrong() -> None:
    program = """
        import sys
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import resource_tracker
        lines = ["try:", " import resource_tracker", " print('imported')"]
        lines += ["except ImportError as error:", " print(error, flush=True)"]
        interpreters.run_string(interpreters.create(), chr(10).join(lines))
    """
    said = run_program(program)
    assert "subinterpreter" in said and "imported" not in said


def test_gevent() -> None:
    pytest.importorskip("gevent")
    program = """
        from gevent import monkey; monkey.patch_all()
        import gevent, time
        from resource_tracker import ResourceTracker
        turns = []
        def other():
            while len(turns) < 1000:
                turns.append(1)
                gevent.sleep(0.005)
        job = gevent.spawn(other)
        with ResourceTracker(interval=0.1) as tracker:
            tracker.wait_for_samples(4)
        job.kill()
        assert len(turns) >= 10, len(turns)  # others had their turn while we waited
        print(tracker.n_samples >= 4)
    """
    assert run_program(program) == "True\n"


def test_rows_keep_their_grid_while_the_interpreters_lock_is_held() -> None:
    # `re` holds the lock for as long as it matches; this pattern takes seconds.
    program = """
        import json, os, re, time
        from resource_tracker import ResourceTracker

        def sampler_waited_s():
            # For how long it wanted to run while others did, by the kernel's account.
            waited_ns = 0
            for task in os.listdir("/proc/self/task"):
                try:
                    if open(f"/proc/self/task/{task}/comm").read().startswith("resource-tracke"):
                        waited_ns += int(open(f"/proc/self/task/{task}/schedstat").read().split()[1])
                except OSError:
                    pass  # it has just ended
            return waited_ns / 1e9

        tracker = ResourceTracker(interval=0.1)
        before = time.monotonic()
        length = 20
        while time.monotonic() - before < 3:
            re.match("(a+)+$", "a" * length + "b")
            length += 1
        held = time.monotonic() - before
        waited = sampler_waited_s()
        tracker.stop()
        missed = sum(tracker.extra_metrics["missed_ticks"])
        print(json.dumps([held, waited, tracker.process_metrics["timestamp"][:-1], missed]))
    """
    with Stalls() as machine:
        held, waited, stamps, missed = json.loads(run_program(program, timeout=120))
    stalled = machine.stalled_s + waited
    # A row may be late by what the machine let nobody run, or the sampler not, and by nothing else.
    gaps = [after - before for before, after in zip(stamps, stamps[1:])]
    assert len(stamps) >= (held - stalled) / 0.1 - 3
    assert max(gaps) < 0.2 + stalled < held
    assert missed <= stalled / 0.1


def test_a_host_that_goes_to_another_folder_keeps_its_rows(scratch: Path) -> None:
    program = """
        import os, sys
        from resource_tracker import ResourceTracker
        os.chdir(os.path.dirname(sys.argv[1]))
        os.environ["TMPDIR"] = os.path.basename(sys.argv[1])
        tracker = ResourceTracker(interval=0.02)
        os.chdir("/")
        tracker.wait_for_samples(3)
        assert len(os.listdir(sys.argv[1])) == 1
        tracker.stop()
        print(len(tracker.process_metrics) == tracker.n_samples)
        tracker.cleanup()
    """
    assert run_program(program, str(scratch)) == "True\n"
    assert list(scratch.iterdir()) == []


def test_a_full_temporary_folder_is_passed_over() -> None:
    program = """
        import os
        from resource_tracker import ResourceTracker
        folder = os.environ["TMPDIR"]
        with open(f"{folder}/fill", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError:
                pass
        with ResourceTracker(interval=0.02) as tracker:
            tracker.wait_for_samples(3)
        print(len(tracker.process_metrics) == tracker.n_samples, os.listdir(folder))
    """
    assert run_with_mount(SMALL_DISK, program) == "True ['fill']\n"


def test_a_host_that_can_write_nothing_has_statistics_and_no_file_of_ours(scratch: Path) -> None:
    # Python ignores SIGXFSZ: every write is an error like that of a full disk.
    program = """
        import logging, os, resource, sys
        from resource_tracker import ResourceTracker
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        with ResourceTracker(interval=0.02) as tracker:
            tracker.wait_for_samples(3)
        assert tracker.stats()["process_memory"]["max"] > 0
        print(len(tracker.process_metrics))
    """
    said, rows = run_program(program).splitlines()
    assert "there are statistics, but no tables" in said and rows == "0"
    assert list(scratch.iterdir()) == []


def test_where_no_thread_can_be_had_the_embedded_catalogue_answers() -> None:
    program = """
        import os, resource, tempfile
        from resource_tracker import ResourceTracker, keeper, report
        os.setgid(65533)
        os.setuid(65533)
        tracker = ResourceTracker(interval=0.05, discover_cloud=False)
        tracker.wait_for_samples(1)
        tracker.stop()
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        print("</html>" in tracker.report(), tracker.recommend_server() is not None)
        print(keeper.get_instance_price("aws", "us-east-1", "t3.micro") is not None)
    """
    assert run_program(program) == "True True\nTrue\n"


def test_memory_is_unknown_while_nothing_can_be_read() -> None:
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


def test_little_of_the_hosts_address_space_is_taken() -> None:
    program = """
        import time
        from resource_tracker import ResourceTracker

        def size_mib():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmSize")) // 1024

        before = size_mib()
        tracker = ResourceTracker(interval=0.1)
        time.sleep(1.5)
        tracker.stop()
        print(size_mib() - before)
    """
    # The C library sets aside 64 MiB, or twice as much, for each thread of ours that has memory of its own.
    assert int(run_program(program)) < 300


def test_nothing_of_ours_stays_in_the_place_of_a_closed_standard_stream(tmp_path: Path) -> None:
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
            # What is being read at this moment may have any number.
            stay &= taken()
            time.sleep(0.01)
        source = tracker._session.cpu_source
        with open(sys.argv[1], "w") as file:
            file.write(f"{sorted(stay)} {source}")
    """
    run_program(program, str(tmp_path / "seen"))
    assert (tmp_path / "seen").read_text() == "[] perf"
