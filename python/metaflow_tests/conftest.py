"""A separate datastore, no network, and flows run from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

HOME = Path(os.environ.get("METAFLOW_TESTS_HOME") or tempfile.mkdtemp(prefix="metaflow-tests-"))
FLOWS = Path(__file__).parent / "flows"
# Before the import of Metaflow, which reads the environment once.
os.environ.update(
    HOME=str(HOME),
    USERNAME="tester",
    METAFLOW_USER="tester",
    METAFLOW_HOME=str(HOME / "config"),
    METAFLOW_DATASTORE_SYSROOT_LOCAL=str(HOME),
    METAFLOW_DEFAULT_DATASTORE="local",
    METAFLOW_DEFAULT_METADATA="local",
    XDG_DATA_HOME=str(HOME / "data"),
    XDG_CACHE_HOME=str(HOME / "cache"),
    RESOURCE_TRACKER_OFFLINE="1",
)

# Metaflow loads its extensions when it is imported.
import metaflow  # noqa: E402, F401


class Flows:
    """Runs of flows, by file name; each run is made once."""

    def __init__(self) -> None:
        self._runs: dict[str, list[tuple[str, subprocess.CompletedProcess[str]]]] = {}

    def run(self, name: str, number: int = 1, *options: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        """Return id and output of run `number`."""
        runs = self._runs.setdefault(name, [])
        while len(runs) < number:
            id_file = HOME / f"{name}.id"
            done = command(name, *options, "run", "--max-workers", "4", "--run-id-file", str(id_file))
            runs.append((id_file.read_text(), done))
        return runs[number - 1]

    def task(self, name: str, step: str, number: int = 1):
        """Return the only task of a step."""
        from metaflow import Step, namespace

        namespace(None)
        flow = {"seed": "ResourceTrackingFlow"}.get(name, f"{name.title()}Flow")
        return Step(f"{flow}/{self.run(name, number)[0]}/{step}").task


def command(
    name: str, *arguments: str, program: Path = FLOWS, around: Sequence[str] = (), **options
) -> subprocess.CompletedProcess[str]:
    """Run a command of a flow, as the arguments of the command `around`."""
    line = [*around, sys.executable, str(program / f"{name}.py"), "--no-pylint", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=HOME, **options)


@pytest.fixture(scope="session")
def flows() -> Flows:
    return Flows()


@pytest.fixture(scope="session")
def cards():
    """Save cards for the browser tests, with their expected content."""
    folder = Path(os.environ.get("METAFLOW_TESTS_CARDS") or HOME / "cards")
    folder.mkdir(parents=True, exist_ok=True)
    expected: dict[str, dict[str, str]] = {}

    def save(name: str, html: str, **shown: str) -> None:
        (folder / f"{name}.html").write_text(html)
        expected[name] = shown

    yield save
    (folder / "expected.json").write_text(json.dumps(expected))
