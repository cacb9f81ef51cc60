"""Types of the package, as users of mypy and pyright see them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from resource_tracker import ResourceTracker
from resource_tracker.tiny_data_frame import TinyDataFrame

TYPING = Path(__file__).parent / "typing"


def check(name: str, tmp_path: Path) -> str:
    """Return what mypy says about a file; from another folder, so that the installed package is checked."""
    pytest.importorskip("mypy")
    arguments = ["--strict", "--config-file", "", "--cache-dir", str(tmp_path), str(TYPING / name)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    return done.stdout + done.stderr


def test_decorated_functions_and_methods_keep_their_signature(tmp_path: Path) -> None:
    assert check("client.py", tmp_path).startswith("Success")


def test_pyright_accepts_the_client_in_strict_mode(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    (tmp_path / "pyrightconfig.json").write_text('{"strict": ["."], "reportUnknownMemberType": false}')
    (tmp_path / "client.py").write_text((TYPING / "client.py").read_text())
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "client.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0 and "0 errors" in done.stdout, done.stdout + done.stderr


def test_wrong_arguments_of_decorated_functions_are_errors(tmp_path: Path) -> None:
    found = check("misuse.py", tmp_path).splitlines()
    expected = [number for number, line in enumerate((TYPING / "misuse.py").open(), 1) if line.endswith("# error\n")]
    assert len(expected) == 5 and [int(line.split(":")[1]) for line in found[:-1]] == expected, found


def test_help_describes_every_parameter() -> None:
    checked = 0
    for name, method in inspect.getmembers(ResourceTracker, callable):
        if name.startswith("_") and name != "__init__":
            continue
        text = (ResourceTracker if name == "__init__" else method).__doc__
        for parameter in inspect.signature(method).parameters:
            if parameter != "self":
                checked += 1
                assert f"{parameter}: " in text or f"`{parameter}`" in text, (name, parameter)
    assert checked > 30, checked


@pytest.fixture(scope="module")
def combined() -> TinyDataFrame:
    with ResourceTracker(interval=0.05, children=False, discover_cloud=False) as tracker:
        tracker.wait_for_samples(3)
    return tracker.get_combined_metrics()


def test_typed_pandas_has_times_and_integers(combined: TinyDataFrame) -> None:
    pandas = pytest.importorskip("pandas")
    typed = combined.to_pandas(typed=True)
    assert str(typed["timestamp"].dtype).startswith("datetime64[") and str(typed["timestamp"].dt.tz) == "UTC"
    seconds = [moment.timestamp() for moment in typed["timestamp"]]
    assert seconds == pytest.approx(combined["timestamp"], abs=1e-6)
    assert typed["process_memory"].dtype == "int64" and typed["process_memory"].tolist() == combined["process_memory"]
    # Children were not tracked.
    assert typed["process_children"].dtype == "Int64" and typed["process_children"].isna().all()
    assert typed["process_cpu_usage"].dtype == "float64"
    assert combined.to_pandas()["timestamp"].dtype == "float64"
    some = TinyDataFrame({"timestamp": [1.5, None], "x": [1, 2]}).to_pandas(typed=True)
    assert some["timestamp"][0] == pandas.Timestamp(1500, unit="ms", tz="UTC") and some["timestamp"].isna()[1]
    assert TinyDataFrame({"timestamp": ["a"]}).to_pandas(typed=True)["timestamp"].tolist() == ["a"]
    changed = combined[:]
    changed["process_memory"][0] = 0.5
    assert changed.to_pandas(typed=True)["process_memory"].dtype == "float64"


def test_typed_arrow_polars_and_parquet_have_times_and_integers(combined: TinyDataFrame, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    typed = combined.to_arrow(typed=True)
    assert typed.schema.field("timestamp").type == pyarrow.timestamp("us", tz="UTC")
    assert typed.schema.field("process_memory").type == pyarrow.int64()
    assert typed.schema.field("process_cpu_usage").type == pyarrow.float64()
    assert typed["process_memory"].to_pylist() == combined["process_memory"]
    assert typed["process_children"].null_count == len(combined)
    seconds = [moment.timestamp() for moment in typed["timestamp"].to_pylist()]
    assert seconds == pytest.approx(combined["timestamp"], abs=1e-6)
    assert combined.to_arrow().schema.field("timestamp").type == pyarrow.float64()
    frame = combined.to_polars(typed=True)
    assert frame["timestamp"].dtype == polars.Datetime("us", "UTC") and frame["process_pid"].dtype == polars.Int64
    assert TinyDataFrame({"timestamp": ["a"]}).to_arrow(typed=True)["timestamp"].to_pylist() == ["a"]

    from pyarrow import parquet

    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(2)
    for name, human_names in (("timestamp", False), ("Timestamp", True)):
        tracker.export(tmp_path / "run.parquet", human_names=human_names)
        table = parquet.read_table(tmp_path / "run.parquet")
        assert table.schema.field(name).type == pyarrow.timestamp("us", tz="UTC")
        seconds = [moment.timestamp() for moment in table[name].to_pylist()]
        assert seconds == pytest.approx(tracker.process_metrics["timestamp"], abs=1e-6)
