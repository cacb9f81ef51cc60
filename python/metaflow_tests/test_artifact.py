"""The artifact of a step is read in other environments, and Metaflow itself is not changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from resource_tracker.tiny_data_frame import TinyDataFrame
from test_decorator import NoMetadata, _run

ORIGINAL = os.environ["RESOURCE_TRACKER_ORIGINAL"]

READ = """
import pickle, sys
data = pickle.load(open(sys.argv[1], "rb"))
rows = data["tracker"]["process_metrics"]
table = data["process_metrics"]
assert type(data["tracker"]) is dict and table["memory"] == [row["memory"] for row in rows] and len(rows) > 0
assert set(data["stats"]["cpu_usage"]) == {"mean", "max"} and data["server_info"]["vcpus"] >= 1
print(type(table).__module__, type(table).__name__)
"""


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "artifact"
    # The protocol that Metaflow uses for artifacts that others may read.
    path.write_bytes(pickle.dumps(_run(NoMetadata), protocol=4))
    return path


def _python(python: str, program: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_artifact_is_read_with_the_original_package(artifact: Path, tmp_path: Path) -> None:
    assert _python(ORIGINAL, READ, str(artifact), cwd=tmp_path) == "resource_tracker.tiny_data_frame TinyDataFrame\n"
    program = """
import pickle, sys
from resource_tracker import ResourceTracker
data = pickle.load(open(sys.argv[1], "rb"))
print(ResourceTracker.from_snapshot(data["tracker"]).stats()["process_memory"]["max"] > 0)
"""
    assert _python(ORIGINAL, program, str(artifact), cwd=tmp_path) == "True\n"


def test_artifact_is_read_without_either_package(artifact: Path, tmp_path: Path) -> None:
    # The interpreter of this environment without its packages.
    base = os.path.realpath(sys.executable)
    assert _python(base, READ, str(artifact), cwd=tmp_path) == "builtins dict\n"


def test_artifact_is_read_here_with_its_types(artifact: Path) -> None:
    data = _run(NoMetadata)
    again = pickle.loads(pickle.dumps(data))
    for name in ("process_metrics", "system_metrics"):
        assert type(again[name]) is TinyDataFrame and again[name] == data[name]
        assert again[name].to_csv() == data[name].to_csv()
    assert again["tracker"].packed is not None and again["tracker"] == data["tracker"]


def test_version_of_metaflow_is_its_own(tmp_path: Path) -> None:
    program = """
import importlib.metadata, metaflow
from metaflow.metaflow_version import get_version
print(metaflow.__version__ == get_version() == importlib.metadata.version("metaflow"), metaflow.track_resources.__doc__)
"""
    printed = _python(sys.executable, program, cwd=tmp_path)
    assert printed.startswith("True Record the resource usage of a step"), printed
