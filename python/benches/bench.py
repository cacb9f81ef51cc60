"""Cost of the package for its host process. The bench fails if a figure exceeds its budget.

    python bench.py [loop] [import] [start] [memory] [stats]

Budgets: a tight loop within 1 % of its speed at 1 s and 3 % at 0.01 s; import under 15 ms; `ResourceTracker()` under
2 ms; 6 MiB after a day of samples; `get_process_stats` of one process ten times as fast as psutil, and of one, 10 and
100 at most 1.5 times the bare kernel reads.

The measured process is a shell. For `smaps_rollup`, the only source of PSS, the kernel visits every page of a process.
The larger the process, the more of the time is spent there, and the smaller is the difference to psutil. Two
interpreters are measured too; a large one exceeds the budget, and so do its bare reads.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

FAILED: list[str] = []


def show(what: str, found: float, unit: str, budget: float, note: str = "") -> None:
    verdict = "ok" if found <= budget else "OVER BUDGET"
    print(f"{what:<44} {found:10.3f} {unit:<4} budget {budget:g} {unit}  {verdict} {note}")
    if found > budget:
        FAILED.append(what)


def best_of(runs: int, work: Callable[[], float]) -> tuple[float, float]:
    """Return the median and the minimum of several runs."""
    found = sorted(work() for _ in range(runs))
    return statistics.median(found), found[0]


def spin() -> float:
    before = time.perf_counter()
    total = 0
    for number in range(5_000):
        total += number
    return time.perf_counter() - before


def slowdown(seconds: float) -> float:
    """Return the slowdown of a loop in percent, compared with an undisturbed loop.

    CPU frequencies change by 10 % and more within a second. Each spin is compared with the hundred spins around it
    (about 20 ms), whose fastest quarter shows the current speed of the CPU.
    """
    end = time.perf_counter() + seconds
    spins = []
    while time.perf_counter() < end:
        spins.append(spin())
    return lost(spins)


def lost(spins: list[float]) -> float:
    """Return the slowdown that the times of equal pieces of work show, in percent."""
    windows = [sorted(spins[first : first + 100]) for first in range(0, len(spins) - 99, 100)]
    undisturbed = sum(window[25] * 100 for window in windows)
    return (sum(map(sum, windows)) / undisturbed - 1) * 100


def loop() -> None:
    """Compare a loop without a tracker to the same loop with a tracker at 1 s and at 0.01 s.

    The loop without a tracker runs twice, to show the remaining noise of the machine.
    """
    from resource_tracker import ResourceTracker

    cases: dict[str, float | None] = {"none": None, "again": None, "1 s": 1.0, "0.01 s": 0.01}
    rounds: list[dict[str, float]] = []
    for _ in range(50):
        lost = {}
        for name, interval in random.sample(list(cases.items()), len(cases)):
            tracker = ResourceTracker(interval=interval, discover_cloud=False) if interval else None
            slowdown(0.3)  # a tracker samples more often at first
            lost[name] = slowdown(1.0)
            if tracker is not None:
                tracker.cleanup()
        rounds.append(lost)

    def slower(name: str) -> float:
        return statistics.median(lost[name] - lost["none"] for lost in rounds)

    note = f"(noise {slower('again'):+.2f} %)"
    show("loop with a tracker at 1 s, slower by", slower("1 s"), "%", 1, note)
    show("loop with a tracker at 0.01 s, slower by", slower("0.01 s"), "%", 3, note)


def importing() -> None:
    program = "import time; t = time.perf_counter(); import resource_tracker; print((time.perf_counter() - t) * 1e3)"

    def run() -> float:
        return float(subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True).stdout)

    run()
    median, least = best_of(25, run)
    show("import, median", median, "ms", 15, f"(least {least:.2f} ms)")


def starting() -> None:
    from resource_tracker import ResourceTracker

    def run() -> float:
        before = time.perf_counter()
        tracker = ResourceTracker()
        taken = time.perf_counter() - before
        tracker.cleanup()
        return taken * 1e3

    run()
    median, least = best_of(50, run)
    show("ResourceTracker(), median", median, "ms", 2, f"(least {least:.2f} ms)")


def memory() -> None:
    """Take 86,400 rows as fast as possible in a new interpreter. RSS, since the bench itself shares the library."""
    program = """
import time
def kib():
    return int([l for l in open("/proc/self/smaps_rollup") if l.startswith("Rss:")][0].split()[1])
before = kib()
from resource_tracker import ResourceTracker
tracker = ResourceTracker(interval=0.001, discover_cloud=False)
early = kib()
while tracker.n_samples < 86_400:
    time.sleep(0.5)
after = kib()
print(before, early, after, tracker.n_samples)
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    before, early, after, rows = map(int, done.stdout.split())
    note = f"(after the start {(early - before) / 1024:.2f} MiB, {rows} rows)"
    show("memory after a day of samples", (after - before) / 1024, "MiB", 6, note)


def psutil_stats(pid: int) -> dict[str, object]:
    """Return the figures of `get_process_stats`, read by psutil."""
    import psutil

    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    stats: dict[str, float] = dict.fromkeys(("utime", "stime", "memory", "read", "write"), 0)
    for member in family:
        with member.oneshot():
            times = member.cpu_times()
            stats["utime"] += times.user + times.children_user
            stats["stime"] += times.system + times.children_system
            stats["memory"] += member.memory_full_info().pss // 1024
            io = member.io_counters()
            stats["read"] += io.read_bytes
            stats["write"] += io.write_bytes
    return {"children": len(family) - 1, **stats}


def stats() -> None:
    from resource_tracker.tracker_procfs import get_process_stats

    # Both read the same kernel files once, including `smaps_rollup`. psutil also reads the parent of every process.
    start = 'i=1; while [ $i -lt $0 ]; do sleep 600 >/dev/null & p="$p $!"; i=$((i + 1)); done; echo up'
    line = start + '; read x; [ -z "$p" ] || kill $p'
    for count in (1, 10, 100):
        tree = subprocess.Popen(["sh", "-c", line, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert tree.stdout is not None and tree.stdout.readline() == b"up\n"
        assert get_process_stats(tree.pid)["children"] == psutil_stats(tree.pid)["children"] == count - 1
        ratio, _ = beside_others(f"{count} process{'es' if count > 1 else ''}", tree.pid, count)
        if count == 1:
            show("time over psutil's, 1 process", ratio, "×", 0.1)
        tree.communicate()
    program = [sys.executable, "-c", "print(flush=True); input()"]
    interpreter = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert interpreter.stdout is not None and interpreter.stdout.readline()
    beside_psutil("a bare interpreter", interpreter.pid)
    interpreter.communicate(b"\n")
    beside_psutil("this interpreter", os.getpid())


def beside_psutil(what: str, pid: int) -> None:
    """Compare with psutil, whose time depends on the machine: it reads the parent of every process."""
    ratio, floor = beside_others(what, pid, 1)
    processes = sum(name.isdigit() for name in os.listdir("/proc"))
    note = f"(bare reads {floor:.3f} ×, psutil among {processes} processes)"
    show(f"time over psutil's, {what}", ratio, "×", 0.1, note)


def beside_others(what: str, pid: int, processes: int) -> tuple[float, float]:
    """Check the time against the bare reads; return the time and the bare reads over psutil's time."""
    from resource_tracker.tracker_procfs import get_process_stats

    readers = {"ours": get_process_stats, "psutil": psutil_stats, "bare": bare_reads}
    taken: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(15):
        # In turns, so that a slow phase of the machine affects all of them.
        for name, read in readers.items():
            taken[name].append(timed_read(read, pid, processes))
    ours, theirs, bare = (statistics.median(taken[name]) for name in readers)
    print(
        f"get_process_stats, {what}: ours {ours:.1f} µs, bare kernel reads {bare:.1f} µs, psutil {theirs:.1f} µs "
        f"({theirs / ours:.1f} × ours)"
    )
    show(f"time over the bare reads, {what}", ours / bare, "×", 1.5)
    return ours / theirs, bare / theirs


def timed_read(read: Callable[[int], object], pid: int, processes: int) -> float:
    """Microseconds per call."""
    calls = max(1, 200 // processes)
    before = time.perf_counter()
    for _ in range(calls):
        read(pid)
    return (time.perf_counter() - before) / calls * 1e6


def bare_reads(root: int) -> None:
    """Open, read and close every file that `get_process_stats` reads."""
    pids = [root]
    for pid in pids:
        for name in ("stat", f"task/{pid}/children", "smaps_rollup", "io"):
            descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
            text = os.read(descriptor, 4096)
            os.close(descriptor)
            if name.endswith("children"):
                pids += map(int, text.split())


if __name__ == "__main__":
    os.environ["RESOURCE_TRACKER_OFFLINE"] = "1"
    os.environ["TMPDIR"] = tempfile.mkdtemp()
    parts = {"loop": loop, "import": importing, "start": starting, "memory": memory, "stats": stats}
    for name in sys.argv[1:] or parts:
        parts[name]()
    sys.exit(f"over budget: {', '.join(FAILED)}" if FAILED else 0)
