"""ResourceTracker: its documented behaviour."""

from __future__ import annotations

import inspect
import io
import math
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Optional

import pytest
import resource_tracker
from conftest import PROCESS, SPENT, SYSTEM, Stalls, run_program
from resource_tracker import (
    ProcessTracker,
    ResourceTracker,
    tracker_procfs,
    tracker_psutil,
)
from resource_tracker.tiny_data_frame import StatSpec
from resource_tracker.tracker import DEFAULT_STATS
from resource_tracker.tracker_procfs import get_process_stats


def test_constructor_has_the_documented_defaults() -> None:
    parameters = inspect.signature(ResourceTracker).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "pid": None,
        "children": True,
        "interval": 1,
        "method": None,
        "autostart": True,
        "track_processes": True,
        "track_system": True,
        "discover_server": True,
        "discover_cloud": True,
        "job": None,
        "tags": None,
        "input": None,
        "store": None,
    }
    # The original package has the first nine, which may be positional.
    kinds = [parameter.kind for parameter in parameters.values()]
    assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 9 + [inspect.Parameter.KEYWORD_ONLY] * 4


def test_attributes_hold_the_arguments() -> None:
    tracker = ResourceTracker(autostart=False, interval=0.5, children=False, track_system=False)
    assert (tracker.pid, tracker.children, tracker.interval) == (os.getpid(), False, 0.5)
    assert (tracker.method, tracker.autostart, tracker.trackers) == (None, False, ["process_tracker"])
    assert (tracker.start_time, tracker.stop_time, tracker.running, tracker.n_samples) == (None, None, False, 0)
    assert (tracker.server_info, tracker.cloud_info) == (None, None)


def test_attributes_set_before_the_start_are_used() -> None:
    tracker = ResourceTracker(autostart=False, discover_cloud=False)
    with subprocess.Popen(["sleep", "60"]) as other:
        tracker.pid, tracker.interval = other.pid, 0.05
        tracker.trackers.remove("system_tracker")
        tracker.start()
        tracker.wait_for_samples(2)
        tracker.stop()
        other.kill()
    assert set(tracker.process_metrics["pid"]) == {other.pid}
    assert not len(tracker.system_metrics)
    assert tracker.snapshot()["metadata"]["interval"] == 0.05
    tracker = ResourceTracker(autostart=False)
    tracker.interval = -1
    with pytest.raises(ValueError, match="interval"):
        tracker.start()


@pytest.mark.parametrize(
    "interval", [0, -1, float("nan"), float("inf"), 86_401, 0.0005, pytest.param(10**400, id="huge")]
)
def test_invalid_interval_is_rejected(interval: float) -> None:
    with pytest.raises(ValueError, match="interval"):
        ResourceTracker(interval=interval)


def test_unknown_method_is_rejected() -> None:
    with pytest.raises(ValueError):
        ResourceTracker(method="thread")


def test_missing_process_is_rejected() -> None:
    with pytest.raises(ProcessLookupError):
        ResourceTracker(pid=2**22 - 1)


@pytest.mark.parametrize("pid", [-1, 2**32, -(2**70)])
def test_invalid_process_id_is_rejected(pid: int) -> None:
    for function in (ResourceTracker, ProcessTracker, get_process_stats):
        with pytest.raises(ValueError, match=f"`{pid}` is not a process id"):
            function(pid=pid)


def test_tracker_starts_once_and_stops_once() -> None:
    tracker = ResourceTracker(interval=0.1)
    assert tracker.running
    with pytest.raises(RuntimeError, match="already running"):
        tracker.start()
    tracker.stop()
    stop_time = tracker.stop_time
    tracker.stop()
    assert tracker.stop_time == stop_time is not None
    assert not tracker.running and tracker.state == "stopped"
    assert ResourceTracker(autostart=False).state is None
    with pytest.raises(RuntimeError, match="Create a new instance"):
        tracker.start()


def test_run_shorter_than_one_interval_has_one_row() -> None:
    tracker = ResourceTracker(interval=60)
    tracker.stop()
    assert tracker.n_samples == len(tracker.process_metrics) == len(tracker.system_metrics) == 1


def test_context_manager_starts_and_stops() -> None:
    with ResourceTracker(interval=0.1) as tracker:
        assert tracker.running
    assert not tracker.running and tracker.n_samples >= 1
    with ResourceTracker(interval=0.1, autostart=False) as tracker:
        assert tracker.running
    assert tracker.stop_time
    for ended in (tracker, ResourceTracker.loads(tracker.dumps())):
        with pytest.raises(RuntimeError, match="Create a new instance"), ended:
            pass


def test_context_manager_accepts_a_tracker_whose_process_has_ended() -> None:
    with subprocess.Popen(["sleep", "0.1"]) as followed:
        tracker = ResourceTracker(pid=followed.pid, interval=0.02)
    while tracker.running:
        time.sleep(0.001)
    with tracker:
        assert tracker.state == "exited" and tracker.n_samples >= 1


def test_tables_have_the_documented_columns(recorded: ResourceTracker) -> None:
    assert recorded.process_metrics.columns == PROCESS.split()
    assert recorded.system_metrics.columns == SYSTEM.split()
    assert len(recorded.process_metrics) == len(recorded.system_metrics) == recorded.n_samples
    assert recorded.process_metrics["timestamp"] == recorded.system_metrics["timestamp"]
    assert all(isinstance(value, float) for value in recorded.process_metrics["memory"])
    assert set(recorded.process_metrics["pid"]) == {float(os.getpid())}


def test_tables_are_readable_while_the_tracker_runs() -> None:
    with ResourceTracker(interval=0.05) as tracker:
        tracker.wait_for_samples(2)
        assert len(tracker.process_metrics) >= 2
        assert tracker.stats()["timestamp"]["duration"] > 0


def test_rows_are_on_the_grid(recorded: ResourceTracker) -> None:
    timestamps = recorded.process_metrics["timestamp"][:-1]
    assert len(timestamps) >= 3
    # Some rows may be late on a busy machine. Without a grid, the median offset would be a quarter of the interval.
    assert sorted(abs(timestamp * 10 - round(timestamp * 10)) for timestamp in timestamps)[len(timestamps) // 2] < 0.1
    # At most one row per grid point, and no row before its grid point.
    assert len({math.floor(timestamp * 10 + 0.02) for timestamp in timestamps}) == len(timestamps)


def test_wait_for_samples_times_out_or_fails_once_stopped() -> None:
    tracker = ResourceTracker(interval=3600)
    with Stalls() as machine:
        before = time.monotonic()
        with pytest.raises(RuntimeError, match="Timed out"):
            tracker.wait_for_samples(5, timeout=0.2)
        waited = time.monotonic() - before
        tracker.stop()
        before = time.monotonic()
        with pytest.raises(RuntimeError, match=r"stopped with 1 sample\(s\)"):
            tracker.wait_for_samples(5, timeout=60)
        waited_once_stopped = time.monotonic() - before
    assert 0.2 <= waited < 1 + machine.stalled_s
    assert waited_once_stopped < 1 + machine.stalled_s
    tracker.wait_for_samples(1)


def test_combined_table_has_units_names_and_prefixes(recorded: ResourceTracker) -> None:
    expected = [
        "timestamp",
        *(f"system_{name}" for name in SYSTEM.split()[1:]),
        *(f"process_{name}" for name in PROCESS.split()[1:]),
    ]
    plain = recorded.get_combined_metrics()
    assert plain.columns == expected and len(plain) == recorded.n_samples
    human = recorded.get_combined_metrics(human_names=True).columns
    assert human[:3] == ["Timestamp", "System processes", "System CPU time (user)"]
    assert "Process memory usage" in human and "System memory page/file cached" in human
    in_bytes = recorded.get_combined_metrics(bytes=True)
    assert in_bytes["process_memory"] == [kib * 1024 for kib in plain["process_memory"]]
    assert in_bytes["system_disk_space_used_gb"][0] == plain["system_disk_space_used_gb"][0] * 1024**3
    assert in_bytes["process_read_bytes"] == plain["process_read_bytes"]
    prefixed = recorded.get_combined_metrics(system_prefix="S.", process_prefix="P.").columns
    assert prefixed[1] == "S.processes" and prefixed[-1] == "P.gpu_utilized"
    bare = recorded.get_combined_metrics(system_prefix="", process_prefix="")
    assert bare.columns[:3] == ["timestamp", "processes", "utime"] and len(bare.columns) == 1 + 20 + 5
    assert bare["utime"] == plain["process_utime"], "the later table wins, as in the original"


def test_tables_are_empty_before_the_first_row() -> None:
    tracker = ResourceTracker(autostart=False)
    assert len(tracker.process_metrics) == len(tracker.get_combined_metrics()) == 0
    for needs_rows in (tracker.wait_for_samples, tracker.recommend_resources, tracker.recommend_server, tracker.report):
        with pytest.raises(RuntimeError, match="has not been started"):
            needs_rows()  # type: ignore[operator]
    with pytest.raises(RuntimeError, match=r"No metrics collected \(yet\)"):
        tracker.stats()
    with pytest.raises(RuntimeError, match=r"No metrics collected \(yet\)"):
        tracker.stats([StatSpec("timestamp", max)])


def test_default_statistics_match_the_tables(recorded: ResourceTracker) -> None:
    stats = recorded.stats()
    assert list(stats) == [
        "process_cpu_usage",
        "process_memory",
        "process_gpu_usage",
        "process_gpu_vram",
        "process_gpu_utilized",
        "system_disk_space_used_gb",
        "system_net_recv_bytes",
        "system_net_sent_bytes",
        "timestamp",
    ]
    assert [list(figures) for figures in stats.values()] == [["mean", "max"]] * 5 + [["max"]] + [["sum"]] * 2 + [
        ["duration"]
    ]
    cpu_s = sum(recorded.process_metrics["utime"]) + sum(recorded.process_metrics["stime"])
    of_work, of_process = SPENT[-1]
    assert 0.9 * of_work <= cpu_s <= 1.1 * of_process
    assert stats["process_memory"]["max"] >= max(recorded.process_metrics["memory"])
    assert recorded.start_time is not None
    last = recorded.process_metrics["timestamp"][-1]
    assert stats["timestamp"]["duration"] == pytest.approx(last - recorded.start_time, abs=0.002)
    assert recorded.stats(DEFAULT_STATS) == recorded.stats(list(DEFAULT_STATS)) == stats


def test_mean_cpu_usage_is_cpu_time_over_wall_time() -> None:
    # An interval of 0.25 s, because with steal time the rate of a shorter row covers more time than the row.
    tracker = ResourceTracker(interval=0.25)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        sum(range(1000))
    time.sleep(0.4)
    tracker.stop()
    stats = tracker.stats()
    cpu_s = sum(tracker.process_metrics["utime"]) + sum(tracker.process_metrics["stime"])
    assert stats["process_cpu_usage"]["mean"] == pytest.approx(cpu_s / stats["timestamp"]["duration"], rel=0.06)


def test_default_list_of_the_original_package_gives_the_default() -> None:
    from statistics import mean

    def specs() -> list[StatSpec]:
        return [
            *(
                StatSpec(column=f"process_{name}", agg=agg, round=2)
                for name in ("cpu_usage", "memory", "gpu_usage", "gpu_vram", "gpu_utilized")
                for agg in (mean, max)
            ),
            StatSpec(column="system_disk_space_used_gb", agg=max, round=2),
            StatSpec(column="system_net_recv_bytes", agg=sum),
            StatSpec(column="system_net_sent_bytes", agg=sum),
            StatSpec(column="timestamp", agg=lambda x: max(x) - min(x), agg_name="duration"),
        ]

    with ResourceTracker(interval=3) as tracker:
        tracker.wait_for_samples(1)
        # A peak between two samples, and a last row that is shorter than the others.
        assert len(b"x" * (64 << 20)) == 64 << 20
        time.sleep(0.05)
    stats = tracker.stats()
    assert stats["process_memory"]["max"] > max(tracker.process_metrics["memory"])
    assert list(tracker.stats(specs()).items()) == list(stats.items())
    alone = ResourceTracker(interval=0.05, track_system=False)
    alone.stop()
    assert alone.stats(specs()) == alone.stats()
    # Any other list is computed from the columns, even if it contains the default list.
    memory = tracker.process_metrics["memory"]
    some = tracker.stats([*specs(), StatSpec("process_memory", min), StatSpec("timestamp", len, "duration")])
    assert some["process_memory"] == {"mean": round(mean(memory), 2), "max": max(memory), "min": min(memory)}
    assert some["timestamp"]["duration"] == tracker.n_samples
    assert tracker.stats(iter(specs())) == stats
    custom = [StatSpec(spec.column, lambda values: 7, spec.name, spec.round) for spec in specs()]
    assert tracker.stats(custom)["process_memory"] == {"mean": 7, "max": 7}, "custom functions are called"


@pytest.mark.parametrize(("agg", "figure"), [(lambda times: "mine", "mine"), (lambda times: times[99:], [])])
def test_custom_duration_function_is_called(recorded: ResourceTracker, agg: Any, figure: Any) -> None:
    specs = [*DEFAULT_STATS[:-1], StatSpec("timestamp", agg, "duration")]
    assert recorded.stats(specs)["timestamp"] == {"duration": figure}
    odd = StatSpec("timestamp", lambda times: times[2] - times[0], "duration")
    assert recorded.stats([*DEFAULT_STATS[:-1], odd])["timestamp"]["duration"] > 0, (
        "a function that fails on two values is custom too"
    )


def test_custom_statistics_see_the_columns(recorded: ResourceTracker) -> None:
    memory = recorded.process_metrics["memory"]
    specs = [StatSpec("process_memory", min), StatSpec("process_memory", len, agg_name="rows")]
    assert recorded.stats(specs) == {"process_memory": {"min": min(memory), "rows": len(memory)}}


def test_recommendation_uses_this_run_and_its_history(recorded: ResourceTracker) -> None:
    recommended = recorded.recommend_resources()
    assert list(recommended) == ["cpu", "memory", "gpu", "vram"]
    assert (recommended["cpu"], recommended["gpu"], recommended["vram"]) == (1, 0, 0)
    assert recommended["memory"] in (128, 256, 512)
    history = [{**recorded.stats(), "process_cpu_usage": {"mean": 9.0, "max": 9.0}}]
    assert recorded.recommend_resources(historical_stats=history)["cpu"] == 5
    with pytest.raises(ValueError):
        recorded.recommend_resources(historical_stats=[{"process_cpu_usage": {"median": 1.0}}])


def test_recommended_server_respects_filters(recorded: ResourceTracker) -> None:
    server = recorded.recommend_server()
    assert server is not None and server["vcpus"] >= 1 and server["source"] == "embedded"
    on_aws = recorded.recommend_server(vendor_id="aws", historical_stats=[recorded.stats()])
    assert on_aws is not None and on_aws["vendor_id"] == "aws"
    assert recorded.recommend_server(max_price=0.0000001) is None
    with pytest.raises(TypeError, match="unknown filter"):
        recorded.recommend_server(no_such_filter=1)


def test_recommendation_without_the_process_table_is_an_error() -> None:
    with ResourceTracker(interval=0.05, track_processes=False) as tracker:
        tracker.wait_for_samples(1)
    assert tracker.trackers == ["system_tracker"]
    assert len(tracker.process_metrics) == 0 and len(tracker.system_metrics) >= 1
    assert not any(name.startswith("process_") for name in tracker.get_combined_metrics().columns)
    assert not any(name.startswith("process_") for name in tracker.stats())
    with pytest.raises(RuntimeError):
        tracker.recommend_resources()


def test_without_the_system_table_its_columns_are_missing() -> None:
    with ResourceTracker(interval=0.05, track_system=False) as tracker:
        tracker.wait_for_samples(1)
    assert tracker.n_samples == len(tracker.process_metrics)
    assert not any(name.startswith("system_") for name in tracker.get_combined_metrics().columns)
    assert not any(name.startswith("system_") for name in tracker.stats())


def test_children_are_counted_or_left_out() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        with ResourceTracker(interval=0.05) as tracker:
            tracker.wait_for_samples(1)
        assert tracker.process_metrics["children"][0] == 1.0
        with ResourceTracker(interval=0.05, children=False) as alone:
            alone.wait_for_samples(1)
        assert set(alone.process_metrics["children"]) == {None}
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("method", [None, "spawn"])
def test_another_process_is_followed_until_it_ends(method: Optional[str]) -> None:
    child = subprocess.Popen(["sleep", "60"])
    tracker = ResourceTracker(pid=child.pid, interval=0.1, method=method)
    tracker.wait_for_samples(3)
    assert tracker.state == "running"
    child.kill()
    child.wait()
    deadline = time.monotonic() + 20
    while tracker.running and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not tracker.running and tracker.state == "exited"
    ended_at = tracker.stop_time
    assert ended_at == tracker.process_metrics["timestamp"][-1], "the time of the last row, not of `stop`"
    time.sleep(0.1)
    tracker.stop()
    assert tracker.stop_time == ended_at and tracker.state == "exited"
    assert ResourceTracker.loads(tracker.dumps()).state == "stopped"
    assert tracker.n_samples >= 3
    assert set(tracker.process_metrics["pid"]) == {float(child.pid)}


def test_server_and_cloud_info_are_optional(recorded: ResourceTracker) -> None:
    info = recorded.server_info
    assert info is not None and info["allocation"] in ("shared", "dedicated")
    assert {"os", "vcpus", "memory_mb", "gpu_count", "gpu_names", "gpu_name", "cpu_limit"} <= set(info)
    with ResourceTracker(interval=60, discover_server=False, discover_cloud=False) as tracker:
        pass
    assert tracker.server_info is None and tracker.cloud_info is None
    with ResourceTracker(interval=0.05, track_processes=False, discover_cloud=False) as tracker:
        tracker.wait_for_samples(2)
    assert tracker.server_info is not None and tracker.server_info["allocation"] is None, (
        "there is no job to compare with"
    )


def test_cleanup_removes_the_files(scratch: Path) -> None:
    tracker = ResourceTracker(interval=0.05)
    tracker.wait_for_samples(1)
    assert len(list(scratch.iterdir())) == 1
    tracker.cleanup()
    assert list(scratch.iterdir()) == []
    assert not tracker.running and tracker.n_samples >= 1 and len(tracker.process_metrics) == 0


def test_default_statistics_survive_cleanup_and_rows_do_not(tmp_path: Path) -> None:
    file, sink = tmp_path / "run.json.gz", io.BytesIO()
    tracker = ResourceTracker(interval=0.05)
    tracker.wait_for_samples(1)
    tracker.stop()
    stats, recommended = tracker.stats(), tracker.recommend_resources()
    tracker.cleanup()
    assert tracker.stats() == tracker.stats(list(DEFAULT_STATS)) == stats
    assert tracker.recommend_resources() == recommended
    assert len(tracker.system_metrics) == len(tracker.extra_metrics) == len(tracker.get_combined_metrics()) == 0
    with pytest.raises(RuntimeError, match=r"No metrics collected \(yet\)"):
        tracker.stats([StatSpec("process_memory", min)])
    dump_both = [lambda: tracker.dump(file), lambda: tracker.dump(sink)]
    for save in (tracker.report, tracker.snapshot, tracker.dumps, *dump_both):
        with pytest.raises(RuntimeError, match="removed by cleanup"):
            save()  # type: ignore[operator]
    assert not file.exists() and sink.getvalue() == b""


def test_cleanup_can_be_repeated(scratch: Path) -> None:
    tracker = ResourceTracker(interval=0.05, autostart=False)
    tracker.cleanup()
    tracker.start()
    assert tracker.running and len(list(scratch.iterdir())) == 1
    tracker.cleanup()
    assert not tracker.running and list(scratch.iterdir()) == []
    tracker.cleanup()


@pytest.mark.parametrize("method", [None, "spawn"])
def test_unusable_temporary_folder_loses_no_rows(monkeypatch: pytest.MonkeyPatch, method: Optional[str]) -> None:
    for name in ("TMPDIR", "HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "/proc/no/such/folder")
    with ResourceTracker(interval=0.05, method=method) as tracker:
        tracker.wait_for_samples(2)
    assert len(tracker.process_metrics) == len(tracker.system_metrics) == tracker.n_samples >= 2
    tracker.cleanup()


def test_flags_accept_any_truth_value() -> None:
    with ResourceTracker(interval=0.05, children=1, track_system=0, discover_cloud=None) as tracker:  # type: ignore[arg-type]
        tracker.wait_for_samples(1)
    assert (tracker.children, tracker.trackers) == (True, ["process_tracker"])
    assert tracker.get_combined_metrics(bytes=1, human_names=0).columns  # type: ignore[arg-type]
    assert tracker.recommend_resources(None)["memory"] > 0  # type: ignore[arg-type]
    assert ProcessTracker(children=0, autostart=0).diff_stats()["children"] is None  # type: ignore[arg-type]
    for module in (tracker_procfs, tracker_psutil):
        assert module.get_process_stats(os.getpid(), 1)["children"] is not None  # type: ignore[arg-type]


def test_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert resource_tracker.__version__ == version("resource-tracker")


def test_nothing_is_printed() -> None:
    program = """
        from resource_tracker import ResourceTracker
        with ResourceTracker(interval=0.05) as tracker:
            tracker.wait_for_samples(2)
        tracker.recommend_server()
    """
    assert run_program(program) == ""


def test_warning_goes_to_logging_handlers_only() -> None:
    program = """
        import logging, sys
        from resource_tracker.tracker import _log
        sys.stderr = sys.stdout
        _log("warning", "without a handler %s", 1)
        logging.basicConfig(stream=sys.stdout, format="%(name)s: %(message)s")
        _log("warning", "with a handler %s", 2)
    """
    assert run_program(program) == "resource_tracker: with a handler 2\n"


def test_shortest_run_has_a_cpu_rate() -> None:
    for length in range(10):
        with ResourceTracker(discover_cloud=False) as tracker:
            sum(range(10_000 * length))
        (cores,) = tracker.process_metrics["cpu_usage"]
        assert cores is not None
