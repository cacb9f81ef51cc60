"""A host process that forks: the tracker is read-only in the child, which can start its own."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import run_program
from resource_tracker import ResourceTracker


def test_forked_child_neither_stops_the_sampler_nor_removes_the_files_of_its_parent(scratch: Path) -> None:
    # In an interpreter of its own, since objects of other libraries, which have threads, may not end in a forked child.
    program = """
        import gc, os
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(1)
        for ending in ("os._exit", "sys.exit", "stop", "cleanup", "del"):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    assert not tracker.running and tracker.n_samples >= 1
                    assert len(tracker.process_metrics) >= 1
                    if ending in ("stop", "cleanup"):
                        getattr(tracker, ending)()
                    elif ending == "del":
                        del tracker
                        gc.collect()
                    code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, ending
            assert tracker.running and len(os.listdir(os.environ["TMPDIR"])) == 1, ending
        samples = tracker.n_samples
        tracker.wait_for_samples(samples + 3)
        tracker.stop()
    """
    run_program(program)
    assert list(scratch.iterdir()) == []


def test_end_of_the_interpreter_in_a_forked_child_leaves_the_files_alone(scratch: Path) -> None:
    program = """
        import os, sys
        from resource_tracker import ResourceTracker
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(1)
        if os.fork() == 0:
            sys.exit(0)  # runs the exit handlers of the interpreter
        os.wait()
        files = os.listdir(os.environ["TMPDIR"])
        samples = tracker.n_samples
        tracker.wait_for_samples(samples + 2)
        print(len(files), tracker.running)
    """
    assert run_program(program) == "1 True\n"
    assert list(scratch.iterdir()) == [], "the end of the parent removes them"


@pytest.mark.parametrize("what", ["start", "load"])
def test_fork_while_another_thread_uses_a_tracker_does_not_hang_the_child(what: str) -> None:
    program = """
        import os, sys, threading, time
        from resource_tracker import ResourceTracker

        with ResourceTracker(interval=0.01, discover_cloud=False) as tracker:
            tracker.wait_for_samples(20)
        loaded, ended = ResourceTracker.loads(tracker.dumps()), threading.Event()

        def use():
            while not ended.is_set():
                if sys.argv[1] == "load":
                    loaded.snapshot()
                else:
                    ResourceTracker(interval=1, discover_cloud=False).stop()

        thread = threading.Thread(target=use)
        thread.start()
        for _ in range(30):
            child = os.fork()
            if child == 0:
                sys.exit(0)
            late = time.monotonic() + 20
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                if time.monotonic() > late:
                    os.kill(child, 9)
                    ended.set()
                    sys.exit("the child hangs")
                time.sleep(0.005)
        ended.set()
        thread.join()
    """
    run_program(program, what, timeout=120)


def test_forked_child_can_have_its_own_tracker() -> None:
    with ResourceTracker(interval=0.05) as parents:
        parents.wait_for_samples(1)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with ResourceTracker(interval=0.05) as own:
                    own.wait_for_samples(2)
                code = 0 if set(own.process_metrics["pid"]) == {float(os.getpid())} else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str) -> None:
    program = """
        import multiprocessing, sys, time
        from resource_tracker import ResourceTracker

        def work(n):
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
            return n

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            with ResourceTracker(interval=0.05) as tracker:
                with context.Pool(2) as pool:
                    assert pool.map(work, range(4)) == [0, 1, 2, 3]
            spent = sum(tracker.process_metrics["utime"]) + sum(tracker.process_metrics["stime"])
            assert spent > 0.75, spent
            assert max(tracker.process_metrics["children"]) >= 2
            print("fine")
    """
    # `spawn` imports the main module again, so it needs a file.
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(textwrap.dedent(program))
    done = subprocess.run([sys.executable, file.name, method], stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "fine\n")


def test_fork_during_the_cloud_discovery_leaves_the_child_able_to_discover() -> None:
    # Each round is a new process, which forks before, during and after the discovery.
    program = """
        import os, signal, sys, threading, time
        from resource_tracker import ResourceTracker, get_cloud_info
        ending = time.monotonic() + 0.3
        finder = threading.Thread(target=get_cloud_info)
        finder.start()
        children = 0
        while children < 6 or (time.monotonic() < ending and children < 60):
            pid = os.fork()
            if pid == 0:
                signal.alarm(10)
                with ResourceTracker(interval=0.05) as tracker:
                    info = get_cloud_info()
                    known = tracker.cloud_info
                os._exit(0 if info["vendor"] == "unknown" and known["vendor"] == "unknown" else 1)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status == 0, status
            children += 1
        finder.join()
        print(children)
    """
    assert all(int(run_program(program)) >= 6 for _ in range(5))


_KEPT: list[ResourceTracker] = []


def _track_and_keep() -> None:
    _KEPT.append(ResourceTracker(interval=0.05, discover_cloud=False))
    _KEPT[0].wait_for_samples(1)


def test_worker_that_keeps_its_tracker_leaves_no_file(scratch: Path) -> None:
    worker = multiprocessing.get_context("fork").Process(target=_track_and_keep)
    worker.start()
    worker.join()
    assert worker.exitcode == 0 and [path.name for path in scratch.glob("*.journal")] == []


def test_exit_handlers_see_the_recording() -> None:
    program = """
        import atexit, weakref
        from resource_tracker import ResourceTracker
        weakref.finalize(ResourceTracker, print, end="")
        atexit.register(lambda: print(tracker.running, len(tracker.process_metrics) > 0))
        import multiprocessing.util
        tracker = ResourceTracker(interval=0.05)
        tracker.wait_for_samples(2)
    """
    assert run_program(program) == "True True\n"


def test_worker_that_starts_the_tracker_of_its_parent_leaves_no_file(scratch: Path) -> None:
    tracker = ResourceTracker(interval=0.05, autostart=False)
    worker = multiprocessing.get_context("fork").Process(target=tracker.start)
    worker.start()
    worker.join()
    assert worker.exitcode == 0 and [path.name for path in scratch.glob("*.journal")] == []
