"""Jobs for the tests: `jobs.py KIND SECONDS`. Each uses about SECONDS of CPU time."""

import os
import signal
import sys
import threading
import time


def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def child(seconds):
    pid = os.fork()
    if pid == 0:
        busy(seconds)
        os._exit(0)
    return pid


def one(seconds):
    busy(seconds)


def short_children(seconds):
    for _ in range(int(seconds / 0.02)):
        os.waitpid(child(0.02), 0)


def children_of_threads(seconds):
    def work():
        for _ in range(4):
            os.waitpid(child(seconds / 8), 0)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def double_fork(seconds):
    """Start a worker that leaves the process tree, and wait for its end, which closes the pipe."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(reader)
            busy(seconds)
        os._exit(0)
    os.close(writer)
    os.wait()
    os.read(reader, 1)


def ignored_sigchld(seconds):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(int(seconds / 0.1)):
        child(0.1)
        try:
            os.wait()
        except ChildProcessError:
            pass


def writers(_seconds):
    """120 MiB to disk, 5 MiB by each of 24 children."""
    block = b"x" * (1 << 20)
    folder = os.environ["JOB_FOLDER"]
    for number in range(24):
        pid = os.fork()
        if pid == 0:
            path = os.path.join(folder, f"file{number}")
            with open(path, "wb", buffering=0) as file:
                for _ in range(5):
                    file.write(block)
                os.fsync(file.fileno())
            os._exit(0)
        os.waitpid(pid, 0)


def shared(_seconds):
    """400 MiB shared by 8 processes and their parent. When all have read it, a ninth process sleeps for 4 s."""
    import mmap

    size = 400 << 20
    memory = mmap.mmap(-1, size)
    for at in range(0, size, 4096):
        memory[at] = 1
    ready, done = os.pipe()
    children = []
    for _ in range(8):
        pid = os.fork()
        if pid == 0:
            for at in range(0, size, 4096):
                memory[at]
            os.write(done, b"1")
            signal.pause()
        children.append(pid)
    for _ in children:
        os.read(ready, 1)
    os.waitpid(os.spawnlp(os.P_NOWAIT, "sleep", "sleep", "4"), 0)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def idle_children(seconds):
    """A hundred idle processes."""
    children = [os.spawnlp(os.P_NOWAIT, "sleep", "sleep", str(seconds)) for _ in range(100)]
    for pid in children:
        os.waitpid(pid, 0)


def short_peak(_seconds):
    """600 MiB that are allocated and freed between two samples at an interval of 4 s."""
    # Starts 1.5 s after a grid point: a sample may be late on a machine that pauses.
    time.sleep(5.5 - time.time() % 4)
    memory = b"x" * (600 << 20)
    del memory
    assert time.time() % 4 < 3.9, "too slow: the peak lasted until the next sample"
    time.sleep(4.2 - time.time() % 4)


if __name__ == "__main__":
    globals()[sys.argv[1]](float(sys.argv[2]))
