"""The command and Python give the same statistics, advice and report for the same recording."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from resource_tracker import ResourceTracker
from resource_tracker.tracker import _sidecar
from test_jobs import command, runs

ROOT = Path(__file__).parents[2]
FILES = {
    "golden": ROOT / "golden" / "linux-6.18-vm.json",
    "original": ROOT / "fixtures" / "original" / "snapshot.json",
}
SCHEMA = json.loads((ROOT / "docs" / "schema" / "run.schema.json").read_text())

BUSY = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: sum(range(1000))"


def record(home: Path, code: str, *options: str) -> Path:
    """Record a program with the command and return the file in the history."""
    job = [_sidecar(), "run", "--quiet", "--interval", "0.05", *options, "--", sys.executable, "-c", code]
    subprocess.run(job, timeout=60)
    (file,) = home.rglob(f"{runs()[0]['id']}.json.gz")
    return file


@pytest.fixture(params=[*FILES, "busy", "failed", "seventh"])
def recording(request: pytest.FixtureRequest, home: Path) -> Path:
    if request.param in FILES:
        return FILES[request.param]
    if request.param == "busy":
        return record(home, BUSY)
    if request.param == "failed":
        return record(home, f"{BUSY}\nraise SystemExit(3)", "--job", "failing", "--tag", "fold=1")
    for size in range(7):
        data = home / "input"
        data.write_bytes(bytes(1_000_000 * (size + 1)))
        code = f"import time; held = bytearray({10_000_000 * (size + 1)}); time.sleep(0.2)"
        file = record(home, code, "--job", "train", "--input", str(data))
    return file


def test_command_and_python_agree(recording: Path) -> None:
    tracker = ResourceTracker.load(recording)
    stats = command("stats", str(recording), "--json")
    assert tracker.stats() == stats["stats"]
    run = tracker.as_dict()
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(run, {**SCHEMA, "anyOf": [{"$ref": "#/$defs/run"}]})
    jsonschema.validate(stats, SCHEMA)
    assert run == stats["run"] == tracker.advise()["run"] and len(run) >= 30
    shown = command("show", str(recording), "--json")
    assert {name: shown[name] for name in run} == run
    explained = tracker.explain()
    assert explained.keys() >= {"waiting", "programs"} and {name: shown[name] for name in explained} == explained
    assert run["status"] == {"failing": "failed", None: run["status"]}.get(tracker.job, "finished")

    expected = command("recommend", str(recording), "--json", "--offline")
    assert expected.pop("schema_version") >= 1
    advice = tracker.advise()
    assert set(advice) == set(expected) and len(advice) >= 11
    for name, value in expected.items():
        assert advice[name] == value, name
    assert advice["servers"]["anywhere"] and advice["what_if"] and advice["cpu"] and advice["memory"]
    assert advice["runs"] == (7 if tracker.job == "train" else 1)
    if tracker.job == "failing":
        assert advice["warnings"]

    page = html.unescape(tracker.report())
    for text in (advice["requests"]["metaflow"], *(warning["message"] for warning in advice["warnings"])):
        assert text in page, text


def test_options_of_the_advice_mean_the_same(home: Path) -> None:
    for _ in range(3):
        file = record(home, BUSY, "--job", "train")
    options = [
        "--slowdown",
        "100",
        "--history",
        "1",
        "--input",
        str(file),
        "--vendor-id",
        "hcloud",
        "--max-price",
        "0.5",
    ]
    expected = command("recommend", str(file), "--json", "--offline", *options)
    del expected["schema_version"]
    tracker = ResourceTracker.load(file)
    assert tracker.advise(slowdown=100, earlier_runs=1, input=[file], vendor_id="hcloud", max_price=0.5) == expected
    assert expected["runs"] == 2 and tracker.advise() != expected


def test_runs_of_both_fronts_are_one_history(home: Path) -> None:
    for _ in range(2):
        record(home, BUSY, "--job", "train")
    for _ in range(2):
        with ResourceTracker(interval=0.05, job="train") as tracker:
            tracker.wait_for_samples(1)
    assert [run["job"] for run in runs()] == ["train"] * 4
    assert tracker.advise()["runs"] == command("recommend", "train", "--json", "--offline")["runs"] == 4
