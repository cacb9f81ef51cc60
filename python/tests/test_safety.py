"""In-process mode: files, descriptors, threads, signals and children of the host stay untouched."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from conftest import SMALL_DISK, Stalls, run_program, run_with_mount
from resource_tracker import ResourceTracker

#: Name of the sampling thread, which the kernel cuts to 15 characters.
SAMPLER = "resource-tracke"


def _threads() -> set[str]:
    found = set()
    for task in Path("/proc/self/task").iterdir():
        # A thread that has just ended has no name.
        with contextlib.suppress(OSError):
            found.add((task / "comm").read_text().strip())
    return found


def test_garbage_collection_leaves_no_thread_process_or_file(scratch: Path) -> None:
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


def test_proc_of_another_pid_namespace_is_an_error() -> None:
    program = textwrap.dedent("""
        from resource_tracker import ResourceTracker
        from resource_tracker.tracker_procfs import get_process_stats
        from resource_tracker.tracker_psutil import get_process_stats as get_portable_stats

        for read in (ResourceTracker, lambda: ResourceTracker(method="spawn"), get_process_stats, get_portable_stats):
            try:
                read()
            except Exception as error:
                print("`/proc` belongs to another PID namespace" in str(error))
    """)
    command = ["unshare", "--map-root-user", "--pid", "--fork", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n" * 4, done.stdout + done.stderr


def test_many_threads_can_use_one_tracker() -> None:
    tracker = ResourceTracker(interval=0.005)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            for _ in range(30):
                assert tracker.n_samples >= 0
                assert len(tracker.process_metrics) >= 0
                if tracker.n_samples:
                    tracker.stats()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
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


def test_tracker_can_be_created_in_any_thread() -> None:
    done: list[int] = []

    def work() -> None:
        with ResourceTracker(interval=0.05) as tracker:
            tracker.wait_for_samples(1)
        done.append(tracker.n_samples)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert done and done[0] >= 1


def test_signals_are_delivered_to_the_host() -> None:
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
                continue  # the thread has just ended
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


def test_host_does_not_become_a_subreaper_and_keeps_its_children() -> None:
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
    # The child has ended, and its exit status was not collected by the tracker.
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_interpreter_exit_is_not_delayed(scratch: Path) -> None:
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


def test_exception_in_the_host_leaves_no_file(scratch: Path) -> None:
    program = "from resource_tracker import ResourceTracker; t = ResourceTracker(); raise SystemExit(3)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 3
    assert list(scratch.iterdir()) == []


def test_import_in_a_subinterpreter_is_a_clear_error() -> None:
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
    output = run_program(program)
    assert "subinterpreter" in output and "imported" not in output


def test_gevent_tasks_run_while_the_tracker_waits() -> None:
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
        assert len(turns) >= 10, len(turns)  # other tasks ran while the tracker waited
        print(tracker.n_samples >= 4)
    """
    assert run_program(program) == "True\n"


def test_rows_stay_on_the_grid_while_the_gil_is_held() -> None:
    # `re` holds the GIL while it matches; this pattern takes seconds.
    program = """
        import json, os, re, time
        from resource_tracker import ResourceTracker

        def sampler_waited_s():
            # Run-queue delay of the sampling thread, by the kernel's account.
            waited_ns = 0
            for task in os.listdir("/proc/self/task"):
                try:
                    if open(f"/proc/self/task/{task}/comm").read().startswith("resource-tracke"):
                        waited_ns += int(open(f"/proc/self/task/{task}/schedstat").read().split()[1])
                except OSError:
                    pass  # the thread has just ended
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
    # A row may be late only by the time that the machine or the sampling thread could not run.
    gaps = [after - before for before, after in zip(stamps, stamps[1:])]
    assert len(stamps) >= (held - stalled) / 0.1 - 3
    assert max(gaps) < 0.2 + stalled < held
    assert missed <= stalled / 0.1


def test_rows_survive_a_change_of_the_working_directory(scratch: Path) -> None:
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


def test_full_temporary_folder_is_not_used() -> None:
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


def test_host_that_cannot_write_has_statistics_and_no_file(scratch: Path) -> None:
    # Python ignores SIGXFSZ, so every write fails as on a full disk.
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
    warning, rows = run_program(program).splitlines()
    assert "there are statistics, but no tables" in warning and rows == "0"
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(("limit", "method"), [(0, ""), (10, "spawn"), (8_000, "")])
def test_write_past_the_limit_of_file_sizes_does_not_kill_the_host(limit: int, method: str) -> None:
    # Python ignores SIGXFSZ. Its default, as in R or in an embedded Python, ends the process.
    program = """
        import resource, signal, sys
        from resource_tracker import ResourceTracker
        from resource_tracker.report import Report
        limit = int(sys.argv[1])
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        tracker = ResourceTracker(interval=0.01, method=sys.argv[2] or None)
        tracker.wait_for_samples(3 + limit // 200, timeout=30)
        tracker.stop()
        assert tracker.stats()["process_memory"]["max"] > 0
        for save in (tracker.dump, Report("x" * 10_000).save):
            try:
                save("file")
            except OSError as error:
                print(error)
        tracker.cleanup()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == {signal.SIGUSR1} and signal.sigpending() == set()
        with open("own", "wb", buffering=0) as file:
            while True:
                file.write(b"x" * 1_000)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(limit), method]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=os.environ["TMPDIR"])
    # A recording of 43 rows may fit into 8,000 bytes.
    assert done.stdout.splitlines()[-1:] == ["[Errno 27] File too large: 'file'"], done.stdout + done.stderr
    assert limit == 8_000 or len(done.stdout.splitlines()) == 2
    assert done.returncode == -signal.SIGXFSZ, f"a write of the host itself: {done.stderr}"


def test_embedded_catalogue_answers_if_no_thread_can_start() -> None:
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


def test_tracker_reserves_little_address_space() -> None:
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
    # The C library reserves 64 or 128 MiB of address space for each thread that allocates memory.
    assert int(run_program(program)) < 300
