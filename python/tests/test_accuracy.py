"""Compares reported with true CPU time of jobs that run between `ResourceTracker()` and `stop()`.

The true CPU time comes from a cgroup that contains only the program. This needs root; without it the tests fail instead
of being skipped.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Optional

import pytest
import resource_tracker

NOBODY = 65534
JOBS = [("one", 3), ("short_children", 3), ("children_of_threads", 3), ("double_fork", 3), ("ignored_sigchld", 3)]
SYSTEM_PYTHON = "/usr/bin/python3"
PROGRAM = """
    import json, os, sys
    kind, seconds, group, method = sys.argv[1], float(sys.argv[2]), sys.argv[3], eval(sys.argv[4])
    import jobs
    from resource_tracker import ResourceTracker

    def true_s():
        try:
            with open(f"{group}/cpuacct.usage") as file:
                return int(file.read()) / 1e9
        except FileNotFoundError:
            with open(f"{group}/cpu.stat") as file:
                return int(file.readline().split()[1]) / 1e6

    tracker = ResourceTracker(method=method)
    # After the start: a sidecar is not part of the job.
    with open(f"{group}/cgroup.procs", "w") as file:
        file.write("0")
    getattr(jobs, kind)(seconds)
    true = true_s()
    tracker.stop()
    if method is None:
        # The sampling thread is in the group but not part of the job.
        true -= sum(cell or 0 for cell in tracker.extra_metrics["tracker_cpu"])
    reported = sum(tracker.process_metrics["utime"]) + sum(tracker.process_metrics["stime"])
    print(json.dumps([reported, true, tracker._session.cpu_source]))
"""
_NUMBER = itertools.count()


@pytest.mark.parametrize("user", [0, NOBODY])
@pytest.mark.parametrize(("kind", "seconds"), JOBS)
@pytest.mark.parametrize("method", [None, "spawn"])
def test_reported_cpu_time_matches_the_kernel(
    kind: str, seconds: float, user: int, method: Optional[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Steal time is in the perf counter but not in the kernel's account (docs/numbers.md). A run with 1 % of steal or
    # more is repeated, and the run with the least steal counts.
    least_steal, ratio = float("inf"), float("nan")
    for _attempt in range(4):
        before_s = _steal_s()
        reported, true, source = _run(kind, seconds, user, method)
        steal = (_steal_s() - before_s) / true
        with capsys.disabled():
            sys.stdout.write(
                f"\n{kind:<20} uid {user:<6} method {method!s:<6} reported {reported:.3f} s, true {true:.3f} s, "
                f"ratio {reported / true:.4f} by {source}, {steal:.3f} steal"
            )
        if steal < least_steal:
            least_steal, ratio = steal, reported / true
        if steal < 0.01:
            break
    assert 0.98 <= ratio <= 1.02


def _steal_s() -> float:
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def _run(kind: str, seconds: float, user: int, method: Optional[str]) -> tuple[float, float, str]:
    """Return reported and true CPU seconds, and the source of the reported time."""
    # A plain user cannot read root's folders, so package and job are copied to an open folder.
    folder = Path(f"/tmp/resource-tracker-accuracy-{os.getpid()}-{next(_NUMBER)}")
    # Version 1 if it is mounted, otherwise version 2, in which a plain user may only move a process that is already
    # below a group of this user.
    root = Path("/sys/fs/cgroup")
    root = root / "cpuacct" if (root / "cpuacct").exists() else root
    outer = root / f"python-truth-{os.getpid()}-{next(_NUMBER)}"
    group = outer / "job"
    group.mkdir(parents=True)
    try:
        for part in (outer, group):
            os.chown(part / "cgroup.procs", user, user)
        folder.mkdir(mode=0o777)
        folder.chmod(0o777)
        package = Path(resource_tracker.__file__).parent
        shutil.copytree(package, folder / "resource_tracker", ignore=shutil.ignore_patterns("__pycache__"))
        from resource_tracker.tracker import _sidecar

        (folder / "bin").mkdir()
        shutil.copy2(_sidecar(), folder / "bin")
        shutil.copy(Path(__file__).parents[2] / "crates" / "cli" / "tests" / "jobs.py", folder)
        environment = {
            "PATH": f"{folder}/bin:/usr/bin:/bin",
            "PYTHONPATH": str(folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "RESOURCE_TRACKER_OFFLINE": "1",
        }
        enter = f'echo $$ > {outer}/cgroup.procs && exec setpriv --reuid={user} --regid={user} --clear-groups "$@"'
        program = [SYSTEM_PYTHON, "-c", textwrap.dedent(PROGRAM), kind, str(seconds), str(group), repr(method)]
        done = subprocess.run(
            ["sh", "-c", enter, "sh", *program],
            capture_output=True,
            text=True,
            env=environment,
            cwd=folder,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        reported, true, source = json.loads(done.stdout)
        return reported, true, source
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for part in (group, outer):
            try:
                part.rmdir()
            except OSError:
                pass
