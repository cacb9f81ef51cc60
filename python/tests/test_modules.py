"""Modules and functions of the package."""

from __future__ import annotations

import copy
import datetime
import doctest
import importlib
import os
import pickle
import pkgutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import resource_tracker
from conftest import run_program
from resource_tracker import ResourceTracker
from resource_tracker.report import Report, round_memory
from resource_tracker.snapshot import Snapshot
from resource_tracker.tiny_data_frame import TinyDataFrame

CONTRACT = {
    "resource_tracker": "ResourceTracker ProcessTracker SystemTracker PidTracker get_cloud_info get_server_info",
    "resource_tracker.tracker": "ResourceTracker ProcessTracker SystemTracker PidTracker",
    "resource_tracker.tiny_data_frame": "TinyDataFrame StatSpec",
    "resource_tracker.helpers": "aggregate_stats is_partition render_csv_row is_psutil_available is_procfs_available "
    "get_tracker_implementation get_zfs_pools_space cleanup_files cleanup_processes",
    "resource_tracker.report": "Report round_memory",
    "resource_tracker.keeper": "keeper_request get_instance_price get_recommended_cloud_servers",
    "resource_tracker.cloud_info": "get_cloud_info",
    "resource_tracker.server_info": "get_server_info get_total_memory_mb get_gpu_info",
    "resource_tracker.column_maps": "HUMAN_NAMES_MAPPING BYTE_MAPPING SERVER_ALLOCATION_CHECKS REPORT_CSV_MAPPING",
    "resource_tracker.tracker_procfs": "get_process_stats get_system_stats",
    "resource_tracker.tracker_psutil": "get_process_stats get_system_stats",
    "resource_tracker.dummy_workloads": "cpu_single cpu_multi",
}


@pytest.mark.parametrize("module", CONTRACT)
def test_every_public_name_is_importable(module: str) -> None:
    imported = importlib.import_module(module)
    assert [name for name in CONTRACT[module].split() if not hasattr(imported, name)] == []


def test_modules_are_attributes_of_the_package() -> None:
    program = """
    import resource_tracker
    print(resource_tracker.helpers.aggregate_stats([]), resource_tracker.column_maps.BYTE_MAPPING != {})
    try:
        resource_tracker.no_such_module
    except AttributeError as error:
        print(error)
    """
    assert run_program(program) == "{} True\nmodule 'resource_tracker' has no attribute 'no_such_module'\n"


def test_every_docstring_example_runs() -> None:
    ran = 0
    for info in pkgutil.iter_modules(resource_tracker.__path__, "resource_tracker."):
        if info.name.endswith("._native"):
            continue
        result = doctest.testmod(importlib.import_module(info.name))
        assert result.failed == 0, info.name
        ran += result.attempted
    ran += doctest.testmod(resource_tracker).attempted
    assert ran >= 30, ran


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not measure some columns")
def test_both_implementations_give_the_same_keys_and_only_numbers() -> None:
    from resource_tracker import tracker_procfs, tracker_psutil

    one, other = tracker_procfs.get_process_stats(), tracker_psutil.get_process_stats()
    assert list(one) == list(other)
    assert one.pop("gpu_utilized_indexes") == other.pop("gpu_utilized_indexes") == set()
    assert [key for key, value in other.items() if not isinstance(value, (int, float))] == []
    one, other = tracker_procfs.get_system_stats(), tracker_psutil.get_system_stats()
    assert list(one) == list(other)
    disks, spaces = other.pop("disk_stats"), other.pop("disk_spaces")
    assert disks and spaces
    for group in [other, *disks.values(), *spaces.values()]:
        assert [key for key, value in group.items() if not isinstance(value, (int, float))] == []


def test_wheel_has_no_dependencies_and_one_extra() -> None:
    from importlib.metadata import metadata

    meta = metadata("resource-tracker")
    assert meta.get_all("Requires-Dist") is None
    assert meta.get_all("Provides-Extra") == ["psutil"]
    assert (Path(resource_tracker.__file__).parent / "py.typed").exists()


def test_wheel_has_the_licences_of_its_crates() -> None:
    from importlib.metadata import files

    (file,) = [path for path in files("resource-tracker") or [] if path.name == "THIRD-PARTY-LICENSES"]
    text = file.read_text()
    assert "\nserde_json-1." in text and "Permission is hereby granted" in text and "Apache License" in text


def test_import_does_not_load_network_or_data_frame_modules() -> None:
    program = "import sys, resource_tracker; print([n for n in sys.argv[1:] if n in sys.modules])"
    names = ["pandas", "numpy", "polars", "pyarrow", "psutil", "socket", "ssl", "urllib.request", "multiprocessing"]
    assert run_program(program, *names, "logging", "tempfile", "statistics") == "[]\n"


def test_column_maps_match_the_metric_table() -> None:
    from resource_tracker.column_maps import BYTE_MAPPING, HUMAN_NAMES_MAPPING, REPORT_CSV_MAPPING
    from resource_tracker.column_maps import SERVER_ALLOCATION_CHECKS as CHECKS

    assert HUMAN_NAMES_MAPPING["memory_cached"] == "memory page/file cached"
    assert HUMAN_NAMES_MAPPING["net_recv_bytes"] == "inbound network traffic"
    assert (HUMAN_NAMES_MAPPING["pid"], HUMAN_NAMES_MAPPING["children"]) == ("PID", "children")
    assert (BYTE_MAPPING["memory"], BYTE_MAPPING["gpu_vram"]) == (1024, 1024**2)
    assert BYTE_MAPPING["disk_space_used_gb"] == 1024**3 and "read_bytes" not in BYTE_MAPPING
    assert [(check["percent"], check["absolute"]) for check in CHECKS] == [
        (1.25, 0.25),
        (1.5, 512 * 1024),
        (1.25, 0.2),
        (1.25, 512),
    ]
    tracker = ResourceTracker(interval=60)
    tracker.stop()
    combined = tracker.get_combined_metrics(bytes=True, human_names=True)
    for plot, columns in REPORT_CSV_MAPPING.items():
        assert combined[columns].columns == columns and columns[0] == "Timestamp", plot
    assert REPORT_CSV_MAPPING["cpu"] == ["Timestamp", "Process CPU usage", "System CPU usage"]


def test_process_stats_are_totals() -> None:
    from resource_tracker.tracker_procfs import get_process_stats

    child = subprocess.Popen(["sleep", "60"])
    try:
        # A program that starts has hardly any memory yet, and the first call takes memory itself.
        while Path(f"/proc/{child.pid}/stat").read_text().split()[2] != "S":
            time.sleep(0.01)
        get_process_stats(os.getpid())
        stats = get_process_stats(os.getpid())
        assert list(stats) == [
            *["timestamp", "pid", "children", "utime", "stime", "memory", "read_bytes", "write_bytes"],
            *["gpu_usage", "gpu_vram", "gpu_utilized", "gpu_utilized_indexes"],
        ]
        assert stats["children"] == 1 and stats["pid"] == os.getpid()
        alone = get_process_stats(children=False)
        assert alone["children"] is None and alone["memory"] < stats["memory"]
        times = os.times()
        assert stats["utime"] == pytest.approx(times.user + times.children_user, abs=0.05)
    finally:
        child.kill()
        child.wait()
    assert get_process_stats(2**22 - 1)["memory"] == 0


@pytest.mark.parametrize("module", ["tracker_procfs", "tracker_psutil"])
def test_stats_of_an_ended_process_are_zero(module: str) -> None:
    get_process_stats = importlib.import_module(f"resource_tracker.{module}").get_process_stats
    ended = subprocess.Popen(["true"])
    while Path(f"/proc/{ended.pid}/stat").read_text().split()[2] != "Z":
        time.sleep(0.01)
    for pid in (ended.pid, 2**22 + 1):
        stats = get_process_stats(pid)
        assert [stats[name] for name in ("memory", "read_bytes", "write_bytes")] == [0, 0, 0]
    ended.wait()


def test_list_that_contains_itself_is_rejected() -> None:
    from resource_tracker.helpers import aggregate_stats

    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="levels deep"):
        aggregate_stats(endless)


def test_packed_snapshot_can_be_changed_like_a_dict() -> None:
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(1)
    whole = tracker.snapshot()
    assert Snapshot.of(tracker).pop("process_metrics") == whole["process_metrics"]
    assert Snapshot.of(tracker) | {"x": 1} == {**whole, "x": 1}
    assert list(reversed(Snapshot.of(tracker))) == list(reversed(list(Snapshot.of(tracker))))
    changed = Snapshot.of(tracker)
    changed.update(metadata={**whole["metadata"], "interval": 7})
    assert ResourceTracker.from_snapshot(changed).interval == 7
    changed.clear()
    assert changed == {}


def test_system_stats_are_totals() -> None:
    from resource_tracker.tracker_procfs import get_system_stats

    stats = get_system_stats()
    user, nice = map(int, Path("/proc/stat").read_text().split()[1:3])
    assert stats["utime"] == pytest.approx((user + nice) / os.sysconf("SC_CLK_TCK"), abs=1)
    assert stats["processes"] > 1
    for disk in stats["disk_stats"].values():
        assert set(disk) == {"read_bytes", "write_bytes"}
    assert stats["disk_spaces"]
    for space in stats["disk_spaces"].values():
        assert set(space) == {"total", "used", "free"} and space["used"] + space["free"] <= space["total"]


def test_embedded_catalogue_answers_offline() -> None:
    from resource_tracker.keeper import get_instance_price, get_recommended_cloud_servers, keeper_request

    assert keeper_request("/servers?limit=1") is None
    assert get_instance_price("aws", "us-east-1", "t3.micro") == pytest.approx(0.0104)
    servers = get_recommended_cloud_servers(cpu=2, memory=4096, n=3)
    prices = [server["price"] for server in servers]
    assert len(servers) == 3 and prices == sorted(prices)
    with pytest.raises(TypeError, match="unknown filter"):
        get_recommended_cloud_servers(cpu=1, memory=1, nothing="x")
    with pytest.raises(ValueError):
        get_recommended_cloud_servers(cpu=1, memory=1, vendor_id="no such vendor")


@pytest.mark.parametrize("n", [-1, 2**70])
def test_invalid_number_of_servers_is_rejected(n: int) -> None:
    from resource_tracker.keeper import get_recommended_cloud_servers

    with pytest.raises(ValueError, match=f"`n` must be .* not `{n}`"):
        get_recommended_cloud_servers(1, 1, n=n)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), pytest.param(10**400, id="huge")])
def test_invalid_timeout_is_rejected(timeout: float) -> None:
    from resource_tracker.keeper import keeper_request

    with pytest.raises(
        ValueError, match=r"`timeout` must be a finite number of seconds, 0 or more, not `(-1|NaN|inf)`"
    ):
        keeper_request("/x", timeout)


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ({"x": {"mean": 1.0}}, "a `dict`"),
        (None, "a `NoneType`"),
        ("text", "a `str`"),
        (7, "a `int`"),
        ([1], "integer `1`"),
        ([{"x": 1}], "integer `1`"),
        ([{"x": {"mean": "much"}}], 'string "much"'),
        ([{"x": {"mean": object()}}], "`object`"),
    ],
)
def test_invalid_history_is_rejected_with_the_expected_type(history: Any, found: str) -> None:
    from resource_tracker.helpers import aggregate_stats

    with ResourceTracker(interval=60, discover_cloud=False) as tracker:
        pass
    functions = [aggregate_stats] if history is None else [aggregate_stats, tracker.recommend_resources]
    for function in functions:
        with pytest.raises(ValueError, match=f"a list of dicts as returned by `stats\\(\\)`: .*{found}"):
            function(history)
    assert aggregate_stats(iter([{"x": {"mean": 1.0}}])) == {"x": {"mean": 1.0}}  # type: ignore[arg-type]


def test_csv_row_writes_all_number_types_unquoted() -> None:
    from decimal import Decimal

    from resource_tracker.helpers import render_csv_row

    numpy = pytest.importorskip("numpy")
    cells = [1, 2.5, True, numpy.int64(3), numpy.float32(0.5), numpy.float64(0.25), Decimal("1.10"), 'a"b', ""]
    row = render_csv_row(cells)
    assert row.decode() == '1,2.5,True,3,0.5,0.25,1.10,"a""b",""\n'
    assert render_csv_row([None, *cells, None]) == b"," + row[:-1] + b",\n"


def test_cleanup_helpers_remove_files_and_processes(tmp_path: Path) -> None:
    import multiprocessing

    from resource_tracker.helpers import cleanup_files, cleanup_processes

    path = tmp_path / "file"
    path.touch()
    cleanup_files([str(path), str(tmp_path / "gone")])
    assert not path.exists()
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    process.start()
    pid = process.pid
    cleanup_processes([process])
    assert not Path(f"/proc/{pid}").exists()


def test_round_memory_rounds_up_and_rejects_non_finite_numbers() -> None:
    sizes = [(1, 128), (129, 256), (600, 1024), (2048, 2048), (2049, 3072)]
    assert [(mb, round_memory(mb)) for mb, _ in sizes] == sizes
    for mb in (float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError, match="`mb` must be a finite number"):
            round_memory(mb)


def test_report_is_a_string_that_can_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(2)
        assert "Pending" in tracker.report()
    report = tracker.report(historical_stats=[tracker.stats()])
    assert isinstance(report, Report) and isinstance(report, str)
    assert "<html" in report and "Finished" in report
    assert "Failed" in tracker.report(status_failed=True)
    assert "Metaflow" in tracker.report(integration="METAFLOW")
    path = tmp_path / "report.html"
    for name in (path, str(path), os.fsencode(path)):
        assert report.save(name) is report and path.read_text() == report
        path.unlink()
    opened: list[str] = []
    import webbrowser

    monkeypatch.setattr(webbrowser, "open", opened.append)
    assert report.browse() is report
    assert Path(opened[0][len("file://") :]).read_text() == report
    assert report._repr_html_().startswith("<iframe")
    for twin in (pickle.loads(pickle.dumps(report)), copy.deepcopy(report)):
        assert twin == report and isinstance(twin, Report)


def test_report_and_recommendation_reject_the_same_history() -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(1)
    for function in (tracker.recommend_resources, tracker.report):
        with pytest.raises(ValueError, match="median"):
            function(historical_stats=[{"x": {"median": 3}}])  # type: ignore[operator]


def test_report_of_a_loaded_recording_and_of_one_table() -> None:
    with ResourceTracker(interval=0.05, track_system=False) as tracker:
        tracker.wait_for_samples(2)
    assert "<html" in ResourceTracker.loads(tracker.dumps()).report()
    with ResourceTracker(interval=0.05, track_processes=False) as tracker:
        tracker.wait_for_samples(2)
    assert "<html" in tracker.report()


def test_frame_converts_to_arrow_polars_and_pandas() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    pandas = pytest.importorskip("pandas")
    with ResourceTracker(interval=0.05, children=False) as tracker:
        tracker.wait_for_samples(3)
    frame = tracker.process_metrics
    table = frame.to_arrow()
    assert isinstance(table, pyarrow.Table) and table.column_names == frame.columns
    assert table.column("children").null_count == len(frame)
    assert table.column("memory").to_pylist() == frame["memory"]
    assert frame[1:3].to_polars()["timestamp"].to_list() == frame["timestamp"][1:3]
    as_pandas = frame.to_pandas()
    assert isinstance(as_pandas, pandas.DataFrame) and as_pandas["memory"].tolist() == frame["memory"]
    assert as_pandas["children"].isna().all()
    mixed = TinyDataFrame({"i": [1, None], "f": [0.5, None], "t": ["ä", None], "b": [True, False], "n": [None, None]})
    assert mixed.to_arrow().to_pylist() == mixed.to_dict()
    assert polars.DataFrame(mixed).rows() == [tuple(row.values()) for row in mixed]
    numpy = pytest.importorskip("numpy")
    numbers = TinyDataFrame(
        {
            "i": numpy.arange(3),
            "u": numpy.arange(3, dtype="uint8"),
            "f": numpy.array([0.5, 1, 2], dtype="float32"),
            "b": numpy.array([True, False, True]),
            "l": [numpy.int64(1), None, 3],
        }
    )
    assert numbers.to_arrow().to_pylist() == numbers.to_dict()
    assert [str(field.type) for field in numbers.to_arrow().schema] == ["int64", "int64", "double", "bool", "int64"]
    assert numbers.to_polars()["i"].to_list() == [0, 1, 2]
    with pytest.raises(TypeError, match="all of one type"):
        TinyDataFrame({"x": numpy.array(["2024-01-01"], dtype="datetime64[ns]")}).to_arrow()
    with pytest.raises(TypeError, match="all of one type"):
        TinyDataFrame({"x": [1, "a"]}).to_arrow()
    with pytest.raises(TypeError, match="column 'when' holds a `datetime`"):
        TinyDataFrame({"when": [None, datetime.datetime.now()]}).to_arrow()
    for numbers_too_large in ([1, 2**63], [0.5, 10**400]):
        with pytest.raises(OverflowError, match=r"column 'much' holds [0-9]+, which does not fit"):
            TinyDataFrame({"much": numbers_too_large}).to_arrow()
    assert TinyDataFrame(data=[]).to_arrow().num_rows == 0


def test_unused_arrow_capsule_is_freed() -> None:
    program = """
        import resource, sys
        from resource_tracker.tiny_data_frame import TinyDataFrame
        frame = TinyDataFrame({"x": ["a" * 1000] * 1000})
        for _ in range(20):
            frame.__arrow_c_stream__()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(200):
            frame.__arrow_c_stream__()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 20_000, grown
    """
    run_program(program)
