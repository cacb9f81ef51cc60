"""Snapshots, and recordings in files."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from resource_tracker import ResourceTracker


def test_loading_a_subclass_runs_its_constructor(recorded: ResourceTracker) -> None:
    class Labelled(ResourceTracker):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            self.label = "mine"

    loaded = Labelled.loads(recorded.dumps())
    assert isinstance(loaded, Labelled) and loaded.label == "mine"
    assert loaded.n_samples == recorded.n_samples


def test_snapshots_survive_every_round_trip(recorded: ResourceTracker, tmp_path: Path) -> None:
    snapshot = recorded.snapshot()
    assert {"metadata", "server_info", "cloud_info", "process_metrics", "system_metrics"} <= set(snapshot)
    metadata = snapshot["metadata"]
    assert metadata["version"] == 1 and metadata["resource_tracker"]["implementation"] == "procfs"
    assert metadata["duration"] == pytest.approx(metadata["stop_time"] - metadata["start_time"])
    path = tmp_path / "recording.json.gz"
    recorded.dump(os.fsencode(path))
    with gzip.open(path) as file:
        assert json.load(file)["process_metrics"] == snapshot["process_metrics"]
    twins = [
        ResourceTracker.from_snapshot(snapshot),
        ResourceTracker.loads(recorded.dumps()),
        ResourceTracker.loads(recorded.dumps().encode()),
        ResourceTracker.load(path),
        ResourceTracker.load(os.fsencode(path)),
    ]
    for twin in twins:
        assert twin.stats() == recorded.stats()
        assert twin.process_metrics == recorded.process_metrics
        assert (twin.interval, twin.start_time) == (recorded.interval, recorded.start_time)
        assert not twin.running and twin.recommend_resources() == recorded.recommend_resources()
        with pytest.raises(RuntimeError):
            twin.start()


@pytest.mark.parametrize("interval", [0.0005, 1, 2.5, 100_000, 1_000_000_000])
def test_loaded_recording_keeps_its_interval(recorded: ResourceTracker, interval: float) -> None:
    snapshot = recorded.snapshot()
    snapshot["metadata"]["interval"] = interval
    twin = ResourceTracker.from_snapshot(snapshot)
    assert twin.interval == interval == twin.snapshot()["metadata"]["interval"]
    assert isinstance(twin.interval, type(interval))


@pytest.mark.parametrize("field", ["interval", "start_time"])
def test_implausible_number_is_an_error_that_names_the_field(recorded: ResourceTracker, field: str) -> None:
    snapshot = recorded.snapshot()
    snapshot["metadata"][field] = 1e300
    with pytest.raises(ValueError, match=f"`metadata.{field}` is 1e300"):
        ResourceTracker.from_snapshot(snapshot)


def test_recording_of_the_original_package_loads() -> None:
    fixtures = sorted((Path(__file__).parents[2] / "fixtures" / "original").glob("*.json*"))
    assert fixtures, "no recording of the original package to load"
    for fixture in fixtures:
        assert ResourceTracker.load(fixture).n_samples > 0, fixture


def test_nan_in_a_snapshot_loads_as_missing(recorded: ResourceTracker) -> None:
    snapshot = recorded.snapshot()
    snapshot["process_metrics"][0]["memory"] = float("nan")
    for twin in (ResourceTracker.from_snapshot(snapshot), ResourceTracker.loads(json.dumps(snapshot))):
        assert twin.process_metrics["memory"][0] is None


def test_invalid_recording_is_an_error_with_the_file_name(tmp_path: Path, recorded: ResourceTracker) -> None:
    path = tmp_path / "recording.json.gz"
    recorded.dump(path)
    whole = path.read_bytes()
    for content in (whole[:-10], whole[: len(whole) // 2], b"", b"PK\x03\x04", gzip.compress(b"[]"), b"{}"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"recording\.json\.gz"):
            ResourceTracker.load(path)
    with pytest.raises(FileNotFoundError):
        ResourceTracker.load(tmp_path / "missing")
    for snapshot in ({}, {"metadata": {"version": 2}}, {"metadata": object()}):
        with pytest.raises(ValueError):
            ResourceTracker.from_snapshot(snapshot)
    for value in ([], 1, "x", None):
        with pytest.raises(ValueError, match=f"a snapshot is a dict, not of type `{type(value).__name__}`"):
            ResourceTracker.from_snapshot(value)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        ResourceTracker.loads("not JSON")


def test_dump_and_load_accept_an_open_file(recorded: ResourceTracker) -> None:
    file = io.BytesIO()
    recorded.dump(file)
    file.seek(0)
    assert ResourceTracker.load(file).stats() == recorded.stats()


def test_missing_folder_is_a_file_not_found_error(recorded: ResourceTracker, tmp_path: Path) -> None:
    path = str(tmp_path / "missing" / "file")
    for save in (recorded.dump, recorded.report().save, recorded.system_metrics.to_csv, ResourceTracker.load):
        with pytest.raises(FileNotFoundError) as raised:
            save(path)  # type: ignore[operator]
        assert (raised.value.strerror, raised.value.filename) == ("No such file or directory", path)


def test_folder_or_empty_path_is_an_os_error_with_the_path(recorded: ResourceTracker, tmp_path: Path) -> None:
    for use in (recorded.dump, ResourceTracker.load):
        for path, error in ((str(tmp_path), IsADirectoryError), ("", FileNotFoundError)):
            with pytest.raises(error) as raised:
                use(path)  # type: ignore[operator]
            assert raised.value.filename == path


def test_dash_is_a_plain_file_name(
    recorded: ResourceTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for save in (recorded.report().save, recorded.system_metrics.to_csv, recorded.dump):
        save("-")  # type: ignore[operator]
        assert os.path.getsize("-") > 0
        os.unlink("-")
    assert capfd.readouterr().out == ""
