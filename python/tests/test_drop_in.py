"""Programs written for the original package: the same program runs with both packages and prints the same.

`RESOURCE_TRACKER_ORIGINAL` is a Python with release 0.4.2 of the original package (run.sh installs it).
"""

from __future__ import annotations

import ast
import http.server
import inspect
import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from resource_tracker import ResourceTracker
from resource_tracker.tiny_data_frame import StatSpec, TinyDataFrame

ORIGINAL = os.environ.get("RESOURCE_TRACKER_ORIGINAL", "")
MIGRATING = Path(__file__).parents[2] / "docs" / "migrating.md"

#: Public names that are missing on purpose; docs/migrating.md lists them.
MISSING = {
    "tiny_bars": {"render_template"},
    "tracker_procfs": {
        *("get_process_children", "get_process_proc_io", "get_process_proc_times", "get_process_pss_rollup"),
        *("get_process_rss", "get_sector_sizes"),
    },
}

#: Prints every public name that a module defines, with the parameters of functions and methods.
NAMES = """
    import importlib, inspect, pkgutil, resource_tracker

    def parameters(function):
        return list(inspect.signature(function).parameters)

    found = {}
    for info in pkgutil.iter_modules(resource_tracker.__path__):
        if info.name in ("tracker_psutil", "_native"):
            continue
        module = importlib.import_module(f"resource_tracker.{info.name}")
        names = found[info.name] = {}
        for name, value in vars(module).items():
            is_own = name in getattr(module, "__all__", ()) or getattr(value, "__module__", "") == module.__name__
            if name.startswith("_") or not is_own and info.name != "column_maps":
                continue
            if inspect.isclass(value):
                names[name] = None
                for method in dir(value):
                    public = method == "__init__" or not method.startswith("_")
                    if public and inspect.isfunction(getattr(value, method)):
                        names[f"{name}.{method}"] = parameters(getattr(value, method))
            else:
                names[name] = parameters(value) if inspect.isfunction(value) else None
    print(found)
"""


def run(python: str, program: str, tmp_path: Path) -> str:
    """Run a program, from a folder without source code."""
    code = textwrap.dedent(program)
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_original_is_installed(tmp_path: Path) -> None:
    version = run(ORIGINAL, "from resource_tracker._version import __version__; print(__version__)", tmp_path)
    assert version == "0.4.2\n"


def test_every_name_and_parameter_of_the_original_exists(tmp_path: Path) -> None:
    theirs = ast.literal_eval(run(ORIGINAL, NAMES, tmp_path))
    ours = ast.literal_eval(run(sys.executable, NAMES, tmp_path))
    checked = 0
    missing: dict[str, set[str]] = {}
    for module, names in theirs.items():
        for name, parameters in names.items():
            checked += 1
            mine = ours.get(module, {})
            if name not in mine:
                missing.setdefault(module, set()).add(name)
            elif parameters and "args" not in parameters:
                assert mine[name][: len(parameters)] == parameters, (module, name)
    assert missing == MISSING and checked > 60, (missing, checked)
    text = MIGRATING.read_text()
    for module, names in MISSING.items():
        for name in (module, *names):
            assert f"`{name}`" in text, name


#: What is compared, by name. Each program prints one value.
SAME = {
    "server_info": "from resource_tracker import get_server_info; i = get_server_info()\n"
    "print([(k, i[k]) for k in ('os', 'vcpus', 'memory_mb', 'gpu_count', 'gpu_names', 'gpu_name', 'gpu_memory_mb')])",
    "gpu_info": "from resource_tracker.server_info import get_gpu_info; print(get_gpu_info())",
    "process_stats": "import os; from resource_tracker.tracker_procfs import get_process_stats\n"
    "s = get_process_stats(os.getpid()); print(list(s), s['gpu_utilized_indexes'])",
    "report_csv_mapping": "from resource_tracker.column_maps import *; print(REPORT_CSV_MAPPING)",
    "byte_mapping": "from resource_tracker.column_maps import *; print(sorted(BYTE_MAPPING.items()))",
    "human_names": "from resource_tracker.column_maps import *; print(sorted(HUMAN_NAMES_MAPPING.items()))",
    "allocation_checks": "from resource_tracker.column_maps import SERVER_ALLOCATION_CHECKS as checks\n"
    "print([sorted(check.items()) for check in checks])",
    "stat_spec": "from resource_tracker.tiny_data_frame import StatSpec\ns = StatSpec('a', max, round=2)\n"
    "column, agg, agg_name, digits = s\n"
    "print(s, s == ('a', max, None, 2), s._replace(column='b'), s._fields, s._asdict(), s[0], StatSpec._make('abcd'))",
    "columns": "from resource_tracker.tiny_data_frame import TinyDataFrame\nf = TinyDataFrame({'a': [1], 'b': [2]})\n"
    "f.columns = ['x', 'y']; print(f['x'], f[0], f.to_csv())",
    "nvidia": "from resource_tracker import nvidia as n; p, q = n.start_nvidia_smi(), n.start_nvidia_smi_pmon()\n"
    "print(p, q, n.process_nvidia_smi(p), n.process_nvidia_smi_pmon(q, {1}), n.process_nvidia_smi_pmon(q))",
    "file paths": "import os; from resource_tracker import ResourceTracker\n"
    "from resource_tracker.tiny_data_frame import TinyDataFrame\n"
    "t = ResourceTracker(interval=0.1, discover_cloud=False)\nt.wait_for_samples(3); t.stop()\n"
    "for table in ('process', 'system'):\n"
    "    path = getattr(t, table + '_tracker_filepath')\n"
    "    frame = TinyDataFrame(csv_file_path=path); rows = getattr(t, table + '_metrics')\n"
    "    print(len(frame) == len(rows), frame[0] == rows[0], frame.columns, open(path).readline())\n"
    "paths = [t.process_tracker_filepath, t.system_tracker_filepath]; t.cleanup()\n"
    "print([os.path.exists(path) for path in paths])",
    "table that is off": "from resource_tracker import ResourceTracker\n"
    "t = ResourceTracker(interval=0.1, discover_cloud=False, track_processes=False, autostart=False)\n"
    "print(hasattr(t, 'process_tracker_filepath'), isinstance(t.system_tracker_filepath, str))",
}


@pytest.mark.parametrize("what", SAME)
def test_both_packages_print_the_same(what: str, tmp_path: Path) -> None:
    # 0 and 0.0 are the same number.
    ours, theirs = (re.sub(r"\b(\d+)\.0\b", r"\1", run(it, SAME[what], tmp_path)) for it in (sys.executable, ORIGINAL))
    assert ours == theirs


def test_frames_and_specs_are_exchanged_as_pickles(tmp_path: Path) -> None:
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(2)
    frame = tracker.process_metrics
    path = tmp_path / "pickle"
    path.write_bytes(pickle.dumps((frame, StatSpec("memory", max), frame.to_dict())))
    program = f"""
        import pickle
        frame, spec, rows = pickle.load(open({str(path)!r}, "rb"))
        assert frame.to_dict() == rows and frame.stats([spec])["memory"]["max"] > 0
        pickle.dump((frame, spec), open({str(path)!r}, "wb"))
        print(type(frame).__name__, spec.column)
    """
    assert run(ORIGINAL, program, tmp_path) == "TinyDataFrame memory\n"
    again, spec = pickle.loads(path.read_bytes())
    assert again == frame and spec == StatSpec("memory", max)


def test_assigned_column_names_are_checked() -> None:
    frame = TinyDataFrame({"a": [1], "b": [2]})
    with pytest.raises(ValueError, match="1 names for 2 columns"):
        frame.columns = ["x"]
    with pytest.raises(ValueError, match="same name"):
        frame.columns = ["x", "x"]
    assert frame.columns == ["a", "b"]


def test_forked_child_does_not_remove_the_csv_files() -> None:
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(1)
    path = Path(tracker.process_tracker_filepath)
    child = os.fork()
    if child == 0:
        tracker.cleanup()
        os._exit(0)
    os.waitpid(child, 0)
    assert path.exists()
    tracker.cleanup()
    assert not path.exists()


def test_report_names_the_version_of_the_integration() -> None:
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(1)
    assert "from <code>Metaflow</code> 2.19.0" in tracker.report("Metaflow", [], False, "2.19.0")
    assert "from <code>R</code> 4.3" in tracker.report(integration="R", integration_version="4.3")


class _Keeper(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing on stderr."""


def test_keeper_request_takes_an_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RESOURCE_TRACKER_OFFLINE", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Keeper) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program = f"""
            from resource_tracker.keeper import keeper_request
            url = "http://127.0.0.1:{server.server_port}"
            print(keeper_request("/servers?limit=1", 5, url), keeper_request(path="/x", timeout=5, endpoint=url))
        """
        printed = [run(python, program, tmp_path) for python in (sys.executable, ORIGINAL)]
        server.shutdown()
    assert printed == ["{'path': '/servers?limit=1'} {'path': '/x'}\n"] * 2


def test_summary_of_earlier_runs_is_accepted_like_a_list() -> None:
    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.wait_for_samples(1)
    # As documented for the artifact of a Metaflow step.
    summary = {
        "available": True,
        "runs_analyzed": 5,
        "avg_cpu_mean": 7.52,
        "max_memory_max": 59737200.0,
        "avg_gpu_mean": 0.0,
        "max_vram_max": 0.0,
        "max_gpu_count": 0.0,
        "avg_duration": 10.2,
    }
    run = {"process_cpu_usage": {"mean": 7.52}, "process_memory": {"max": 59737200.0}, "timestamp": {"duration": 10.2}}
    expected = tracker.recommend_resources(historical_stats=[run] * 5)
    assert tracker.recommend_resources(historical_stats=summary) == expected and expected["memory"] > 60_000
    assert "6 runs" in tracker.report(historical_stats=summary)
    none = {"available": False, "runs_analyzed": 0}
    assert tracker.recommend_resources(historical_stats=none) == tracker.recommend_resources()


def test_signature_of_the_class_is_that_of_the_original() -> None:
    assert list(inspect.signature(ResourceTracker).parameters)[:9] == [
        *["pid", "children", "interval", "method", "autostart", "track_processes", "track_system"],
        *["discover_server", "discover_cloud"],
    ]
