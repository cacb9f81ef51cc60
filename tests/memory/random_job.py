"""A job with random memory use: `random_job.py SEED SECONDS`.

The seed chooses the operations and their sizes. `run` also works inside a program that a tracker observes in-process.
"""

from __future__ import annotations

import mmap
import os
import random
import sys
import tempfile
import threading
import time

MIB = 1 << 20
PAGE = mmap.PAGESIZE
CHUNK = 4 * MIB
#: A program that is started by exec: it allocates `argv[1]` MiB and holds them for `argv[2]` seconds.
PROGRAM = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); time.sleep(float(sys.argv[2]))"


def private(mib: int) -> mmap.mmap:
    return mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def write(memory: mmap.mmap, start: int = 0, end: int | None = None, pause: float = 0) -> None:
    """Touch pages by writing, in chunks of 4 MiB."""
    end = len(memory) if end is None else end
    for at in range(start, end, CHUNK):
        upto = min(at + CHUNK, end)
        memory[at:upto:PAGE] = b"x" * len(range(at, upto, PAGE))
        if pause:
            time.sleep(pause)


def read(memory: mmap.mmap) -> None:
    """Touch pages by reading, in chunks of 4 MiB."""
    for at in range(0, len(memory), CHUNK):
        memory[at : at + CHUNK : PAGE]


class Job:
    def __init__(self, seed: int, seconds: float) -> None:
        self.random = random.Random(seed)
        self.end = time.monotonic() + seconds
        self.held: list[mmap.mmap] = []
        self.children: list[int] = []

    def size(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def seconds(self, low: float, high: float) -> float:
        return min(self.random.uniform(low, high), max(0.0, self.end - time.monotonic()))

    def fork(self, work) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                work()
            finally:
                os._exit(0)
        return pid

    def reap(self) -> None:
        """Wait for children that have ended; for the oldest one too if many are alive."""
        for pid in list(self.children):
            if os.waitpid(pid, 0 if len(self.children) > 12 else os.WNOHANG)[0]:
                self.children.remove(pid)

    def grow(self) -> None:
        if sum(map(len, self.held)) < 400 * MIB:
            self.held.append(private(self.size(10, 150)))
            write(self.held[-1], pause=self.random.choice([0, 0, 0.002, 0.01]))

    def shrink(self) -> None:
        if self.held:
            self.held.pop(self.random.randrange(len(self.held))).close()

    def fork_and_read(self) -> None:
        for _ in range(self.size(1, 4)):
            hold = self.seconds(0.1, 0.8)
            self.children.append(self.fork(lambda: ([read(memory) for memory in self.held], time.sleep(hold))))

    def fork_and_write(self) -> None:
        part = self.random.choice([0.2, 0.5, 1.0])
        for _ in range(self.size(1, 3)):
            hold = self.seconds(0.1, 0.8)
            ends = [int(len(memory) * part) // PAGE * PAGE for memory in self.held]
            self.children.append(
                self.fork(lambda: ([write(m, 0, end) for m, end in zip(self.held, ends)], time.sleep(hold)))
            )

    def write_after_fork(self) -> None:
        """The parent writes pages that it shares with a child."""
        hold = self.seconds(0.1, 0.6)
        self.children.append(self.fork(lambda: time.sleep(hold)))
        for memory in self.held[:2]:
            write(memory)

    def shared_mapping(self) -> None:
        memory = mmap.mmap(-1, self.size(30, 200) * MIB)
        write(memory)
        for _ in range(self.size(1, 6)):
            hold = self.seconds(0.1, 0.8)
            self.children.append(self.fork(lambda: (read(memory), time.sleep(hold))))
        if self.random.random() < 0.5:
            self.held.append(memory)
        else:
            memory.close()

    def file_mapping(self) -> None:
        size = self.size(20, 150) * MIB
        with tempfile.TemporaryFile(dir=os.environ.get("JOB_FOLDER")) as file:
            for _ in range(size // MIB):
                file.write(b"x" * MIB)
            file.flush()
            memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        for _ in range(self.size(0, 4)):
            hold = self.seconds(0.1, 0.8)
            self.children.append(self.fork(lambda: (read(memory), time.sleep(hold))))
        read(memory)
        time.sleep(self.seconds(0, 0.3))
        memory.close()

    def start_programs(self) -> None:
        for _ in range(self.size(1, 3)):
            argv = [sys.executable, "-c", PROGRAM, str(self.size(5, 120)), str(self.seconds(0.1, 0.8))]
            self.children.append(os.posix_spawn(sys.executable, argv, os.environ))

    def short_children(self) -> None:
        for _ in range(self.size(5, 20)):
            mib = self.size(1, 10)
            os.waitpid(self.fork(lambda: write(private(mib))), 0)

    def replaced_workers(self) -> None:
        """A pool whose workers end after one task."""
        end, workers = time.monotonic() + self.seconds(0.4, 1.2), []
        while time.monotonic() < end:
            mib, hold = self.size(2, 30), self.seconds(0.02, 0.15)
            workers.append(self.fork(lambda: (write(private(mib)), time.sleep(hold))))
            if len(workers) == 4:
                os.waitpid(workers.pop(0), 0)
        for pid in workers:
            os.waitpid(pid, 0)

    def threads(self) -> None:
        mib = self.size(5, 60)

        def work() -> None:
            memory = private(mib)
            write(memory)
            time.sleep(hold)
            memory.close()

        hold = self.seconds(0.05, 0.4)
        started = [threading.Thread(target=work) for _ in range(self.size(2, 6))]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    def rest(self) -> None:
        time.sleep(self.seconds(0.05, 0.4))

    def run(self) -> None:
        operations = [
            self.grow, self.grow, self.grow, self.shrink, self.fork_and_read, self.fork_and_write,
            self.write_after_fork, self.shared_mapping, self.file_mapping, self.start_programs,
            self.short_children, self.replaced_workers, self.threads, self.rest,
        ]  # fmt: skip
        while time.monotonic() < self.end:
            self.reap()
            self.random.choice(operations)()
        for pid in self.children:
            os.waitpid(pid, 0)
        for memory in self.held:
            memory.close()


def run(seed: int, seconds: float) -> None:
    Job(seed, seconds).run()


if __name__ == "__main__":
    run(int(sys.argv[1]), float(sys.argv[2]))
