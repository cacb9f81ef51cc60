#!/usr/bin/env python3
"""Runs the static program in a folder that holds nothing else, with every option of `run`, `report` and `list`.

usage: static.py PROGRAM    as root
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The job is the only program there is.
JOB = "-- /resource-tracker system --samples 2 --interval 0.2"
STEPS = f"""
run --interval 0.1 --output /out.json.gz --csv /out.csv --report /out.html --json /out.json --job first --tag a=b {JOB}
run --store /store --input /resource-tracker --history 5 --slowdown 10 --keep-runs 9 --retry-oom 1 {JOB}
run --output /out.json.gz --force --no-command --no-children --no-system --rows-only --offline --job second {JOB}
run --no-save --quiet --backend procfs {JOB}
run --no-save --live --otlp http://127.0.0.1:9 --prometheus /job.prom --pushgateway http://127.0.0.1:9 {JOB}
run --backend sysinfo {JOB}
report first --output /first.html --history 5 --slowdown 10 --input /resource-tracker --offline
report last --output /out.html --force --vendor-id aws --region us-east-1 --country US --continent Europe
report last --output - --architecture x86_64 --cpu-allocation Dedicated --cpu-manufacturer Intel --max-price 9 --spot
report /out.json.gz --json --storage-size 10 --gpu-model H100 --compliance-framework-id soc2
report last --open --output /last.html
list
list --job first --tag a=b --status finished --since 1d --json
""".strip().splitlines()


def start(folder: Path, step: str, proc: bool = True) -> subprocess.CompletedProcess[str]:
    enter = 'mount -t proc proc "$1/proc" && exec chroot "$@"' if proc else 'exec chroot "$@"'
    isolate = ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", enter, "sh"]
    return subprocess.run(
        [*isolate, str(folder), "/resource-tracker", *step.split()],
        env={"HOME": "/home"},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    (folder / "proc").mkdir()
    shutil.copy(sys.argv[1], folder / "resource-tracker")
    failed = []
    for command in ("run", "report", "list"):
        shown = start(folder, f"{command} --help").stdout
        options = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", shown, re.MULTILINE)) - {"--help"}
        used = {word for step in STEPS if step.startswith(command) for word in step.removesuffix(JOB).split()}
        if not options or options - used:
            failed.append(f"`{command}` has options that this test does not use: {options - used}")
    for step, proc in [*((step, True) for step in STEPS), (f"run {JOB}", False)]:
        began = time.monotonic()
        done = start(folder, step, proc)
        seconds = time.monotonic() - began
        print(f"exit {done.returncode} after {seconds:.2f} s: {step}{'' if proc else ' (without /proc)'}")
        if done.returncode != 0:
            failed.append(f"{step}\n{done.stdout}{done.stderr}")
    with gzip.open(folder / "out.json.gz") as file:
        if len(json.load(file)["process_metrics"]) < 1:
            failed.append("the recording has no rows")
    if "first" not in start(folder, "list").stdout:
        failed.append("the history lacks a run")
    shutil.rmtree(folder)
    if failed:
        sys.exit("\n".join(["FAILED", *failed]))


main()
