#!/usr/bin/env python3
"""What jobs of a known cause wait for: ten runs each, and in how many of them the sentence names the cause.

    benches/waits.py [--tracker PROGRAM] [--runs N] [--seconds S] [CAUSE...]

Needs root, the cpu and memory controllers of cgroup v1, and a file system on a disk. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = str(Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "resource-tracker")
PARTS = ["on_cpu", "wait_cpu", "wait_quota", "wait_disk", "wait_paging", "wait_stolen", "idle"]

SPIN = "import time; end = time.time() + SECONDS\nwhile time.time() < end: pass"
#: Program, and the cause that the sentence must name.
JOBS = {
    "spin loop": (SPIN, "computing"),
    "four spin loops": (
        "import os, time; end = time.time() + SECONDS\nfor _ in range(3):\n    if os.fork() == 0: break\nwhile time.time() < end: pass",
        "short_of_cpus",
    ),
    "quota of half a CPU": (SPIN, "throttled"),
    "cold random reads": (
        "import mmap, os, random, time; end = time.time() + SECONDS\n"
        "file = os.open(FILE, os.O_RDONLY | os.O_DIRECT); page = mmap.mmap(-1, 4096); size = os.path.getsize(FILE) // 4096\n"
        "while time.time() < end: os.preadv(file, [page], random.randrange(size) * 4096)",
        "disk",
    ),
    "memory limit": (
        "import mmap, os, random, time; end = time.time() + SECONDS\n"
        "file = open(FILE, 'rb'); pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); size = len(pages)\n"
        "while time.time() < end: pages[random.randrange(size)]",
        "paging",
    ),
    "sleep": ("import time; time.sleep(SECONDS)", "idle"),
    "lock": (
        "import threading, time; lock = threading.Lock()\ndef hold():\n    with lock: time.sleep(SECONDS)\n"
        "thread = threading.Thread(target=hold); thread.start(); time.sleep(0.1); lock.acquire()",
        "idle",
    ),
    "slow pipe": (
        "import subprocess, sys; producer = subprocess.Popen(['sh', '-c', 'for i in $(seq COUNT); do echo line; sleep 0.1; done'],"
        " stdout=subprocess.PIPE)\nfor line in producer.stdout: pass",
        "idle",
    ),
    "thread beside 16 sleeping": (
        "import threading, time\nfor _ in range(16): threading.Thread(target=time.sleep, args=(SECONDS,)).start()\n" + SPIN,
        "computing",
    ),
}


class Group:
    """A cgroup of one controller with one setting, for the time of a `with` block."""

    def __init__(self, controller: str, settings: dict[str, str]) -> None:
        own = next(line.split(":")[2].strip() for line in open("/proc/self/cgroup") if controller in line.split(":")[1].split(","))
        self.folder = Path(f"/sys/fs/cgroup/{controller}{own}") / f"waits-{os.getpid()}-{random.randrange(10**6)}"
        self.settings = settings

    def __enter__(self) -> str:
        self.folder.mkdir()
        for name, value in self.settings.items():
            (self.folder / name).write_text(value)
        return str(self.folder / "cgroup.procs")

    def __exit__(self, *_: object) -> None:
        self.folder.rmdir()


def run(tracker: str, name: str, seconds: float, folder: Path) -> tuple[str, dict[str, float]]:
    program, file = JOBS[name][0], folder / "file"
    program = program.replace("SECONDS", str(seconds)).replace("COUNT", str(int(seconds * 10))).replace("FILE", repr(str(file)))
    # Pages that are in memory already are charged to another cgroup.
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    recording = folder / "run.json.gz"
    command = [tracker, "run", "-q", "--offline", "-o", str(recording), "--", sys.executable, "-c", program]
    groups = {
        "quota of half a CPU": ("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
        "memory limit": ("memory", {"memory.limit_in_bytes": str(64 << 20)}),
    }
    if name in groups:
        with Group(*groups[name]) as procs:
            enter = f'echo $$ > {procs}; exec "$@"'
            command = [*command[:-3], "sh", "-c", enter, "sh", *command[-3:]]
            subprocess.run(command, check=True, env={**os.environ, "HOME": str(folder)})
    else:
        subprocess.run(command, check=True, env={**os.environ, "HOME": str(folder)})
    shown = subprocess.run([tracker, "show", "--json", str(recording)], check=True, capture_output=True, text=True).stdout
    rows = json.load(gzip.open(recording))["extra_metrics"]
    length = sum(row["elapsed"] for row in rows)
    parts = {part: sum(row[part] or 0 for row in rows) / length for part in PARTS}
    return (json.loads(shown).get("waiting") or {}).get("cause", "none"), parts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tracker", default=BIN)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("causes", nargs="*", default=list(JOBS))
    args = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(dir=ROOT / "target") as folder:
        file = Path(folder) / "file"
        with open(file, "wb") as out:
            for _ in range(512):
                out.write(os.urandom(1 << 20))
        print(f"{'':28}right  {'  '.join(f'{part:>11}' for part in PARTS)}  sum")
        for name in args.causes:
            subprocess.run(["sync"], check=True)
            runs = [run(args.tracker, name, args.seconds, Path(folder)) for _ in range(args.runs)]
            right = sum(cause == JOBS[name][1] for cause, _ in runs)
            failed += right < 0.9 * args.runs
            means = [sum(parts[part] for _, parts in runs) / len(runs) for part in PARTS]
            others = sorted({cause for cause, _ in runs} - {JOBS[name][1]})
            print(f"{name:28}{right:2}/{args.runs:<3} {'  '.join(f'{mean:11.1%}' for mean in means)}  {sum(means):.1%} {' '.join(others)}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
