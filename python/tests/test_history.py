"""The history as a table, exports and titles of recordings, and the command as a module."""

from __future__ import annotations

import csv
import html
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import resource_tracker
from resource_tracker import ResourceTracker
from resource_tracker.tracker import _sidecar


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "resource_tracker", *arguments], capture_output=True, text=True, timeout=60
    )


def test_history_is_a_frame_of_the_runs_of_all_fronts() -> None:
    assert len(resource_tracker.history()) == 0
    subprocess.run([_sidecar(), "run", "-q", "-j", "train", "--tag", "fold=1", "--", "true"], check=True, timeout=60)
    for fold in (1, 2):
        with ResourceTracker(interval=0.05, job="train", tags={"fold": fold}) as tracker:
            tracker.wait_for_samples(1)
    runs = resource_tracker.history()
    assert runs["tags"] == ["fold=2", "fold=1", "fold=1"] and runs["status"] == ["finished"] * 3
    assert runs["command"][2] == "true" and runs["id"][0] == tracker.save()
    assert runs["memory_peak_bytes"][0] == tracker.stats()["process_memory"]["max"] * 1024
    run = tracker.as_dict()
    assert all(runs[name][0] == run[name] for name in runs.columns if name not in ("tags", "command"))
    assert round(run["cpu_mean_cores"], 2) == tracker.stats()["process_cpu_usage"]["mean"]
    assert runs["start_time"][0] == tracker.start_time and runs["duration_seconds"][0] > 0
    assert len(resource_tracker.history(job="train", tag="fold=1")) == 2
    assert len(resource_tracker.history(tag="fold")) == 3 and len(resource_tracker.history(job="other")) == 0
    pytest.importorskip("pandas")
    assert list(runs.to_pandas()["job"]) == ["train"] * 3


def test_recording_is_exported_in_the_format_of_the_extension(recorded: ResourceTracker, tmp_path: Path) -> None:
    combined = recorded.get_combined_metrics()
    recorded.export(tmp_path / "run.csv")
    with open(tmp_path / "run.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(combined) and list(rows[0]) == combined.columns
    recorded.export(str(tmp_path / "run.txt"), "jsonl", bytes=True)
    lines = [json.loads(line) for line in (tmp_path / "run.txt").read_text().splitlines()]
    in_bytes = recorded.get_combined_metrics(bytes=True)
    assert [line["process_memory"] for line in lines] == in_bytes["process_memory"]
    recorded.export(tmp_path / "run.json")
    assert ResourceTracker.load(tmp_path / "run.json").stats() == recorded.stats()
    recorded.export(tmp_path / "run.parquet", human_names=True)
    assert (tmp_path / "run.parquet").read_bytes()[:4] == b"PAR1"
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "run.parquet")
    assert (table.num_rows, "Process CPU usage" in table.column_names) == (len(combined), True)


def test_export_names_the_file_and_the_formats_it_cannot_write(recorded: ResourceTracker, tmp_path: Path) -> None:
    for name in ("run.xlsx", "run"):
        with pytest.raises(ValueError, match=rf"{name}.*csv, json, jsonl or parquet"):
            recorded.export(tmp_path / name)
        assert not (tmp_path / name).exists()
    with pytest.raises(FileNotFoundError, match="missing"):
        recorded.export(tmp_path / "missing" / "run.csv")


def test_module_is_the_command() -> None:
    assert run("--version").stdout.split()[1] == resource_tracker.__version__
    assert run("run", "-q", "--", "sh", "-c", "exit 7").returncode == 7
    assert run("run", "-q", "--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    assert "Usage" in run("nonsense").stderr


def test_report_has_the_job_the_script_or_the_notebook_as_title(tmp_path: Path) -> None:
    program = """
        import sys
        from resource_tracker import ResourceTracker
        with ResourceTracker(interval=0.05, job=sys.argv[1] or None) as tracker:
            tracker.wait_for_samples(1)
        print(tracker.report())
    """
    script = tmp_path / "train & test.py"
    script.write_text(textwrap.dedent(program))
    notebook = {**os.environ, "JPY_SESSION_NAME": "/home/joe/analysis.ipynb"}

    def page(words: list[str], env: Any = None) -> str:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=60, env=env)
        assert done.returncode == 0, done.stderr
        return html.unescape(done.stdout)

    code = textwrap.dedent(program)
    for words, env, title in [
        ([str(script), "nightly"], None, "nightly"),
        ([str(script), ""], None, "train & test.py"),
        (["-c", code, ""], notebook, "analysis.ipynb"),
        (["-c", code, "nightly"], notebook, "nightly"),
        (["-c", code, ""], None, f"{sys.executable} -c"),
    ]:
        shown = page(words, env)
        assert f"<h1><bdi>{title}" in shown, title
        assert f"<code>{sys.executable} {words[0]}" in shown, "the command is shown"


def test_tracker_and_report_show_themselves_in_a_sandboxed_frame(recorded: ResourceTracker) -> None:
    for shown in (recorded._repr_html_(), recorded.report()._repr_html_()):
        assert shown is not None and shown.startswith("<iframe ") and shown.count("<") == 2
        assert 'sandbox="allow-scripts"' in shown and 'height="700"' in shown
        assert "<!DOCTYPE html>" in html.unescape(shown)
    assert ResourceTracker(autostart=False)._repr_html_() is None
