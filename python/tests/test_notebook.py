"""A notebook, executed by nbclient in a kernel of its own. `RESOURCE_TRACKER_NOTEBOOK` names a file to save it in."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

#: The cells by name. A cell that must fail has the word `fails` in its name.
CELLS = {
    "setup": "%load_ext resource_tracker\nimport time\nfrom resource_tracker import ResourceTracker\n\n"
    "def busy(seconds):\n    end = time.monotonic() + seconds\n    while time.monotonic() < end:\n"
    "        sum(range(1000))",
    "value": "%%track_resources 0.1\nx = sum(range(1_000_000))\nx",
    "value in Out": "assert Out[2] == _ == x == 499999500000 and resource_tracker_.n_samples >= 1",
    "live cell": "%%track_resources 0.2 --live\nblock = bytearray(b'1') * 50_000_000\nbusy(3.5)\nlen(block)",
    "cell fails": "%%track_resources\ndef divide(a, b):\n    return a / b\n\ndivide(1, 0)",
    "await fails": "%%track_resources\nhas_run = True\nimport asyncio\nawait asyncio.sleep(0)",
    "await has not run": "assert 'has_run' not in globals()",
    "wrong option fails": "%%track_resources --fast\nhas_run = True",
    "live tracker": "tracker = ResourceTracker(interval=0.2)\ntracker.live()\nbusy(2.5)\ntracker.stop()",
    "tracker": "tracker",
    "report": "tracker.report(title='A run in a notebook')",
    "frame": "tracker.process_metrics[['timestamp', 'cpu_usage', 'memory']]",
    "live tracker that is dropped": "other = ResourceTracker(interval=0.2)\nother.live()\ndel other",
    "unloaded fails": "%unload_ext resource_tracker\n%reload_ext resource_tracker\n%unload_ext resource_tracker\n"
    "get_ipython().run_cell_magic('track_resources', '', 'has_run = True')",
}


class Executed:
    """The outputs of the cells by name, and the texts of a live view in the order in which they arrived."""

    def __init__(self, folder: Path) -> None:
        updates: dict[int, list[str]] = {}

        class Client(nbclient.NotebookClient):  # type: ignore[misc]
            def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
                if msg["msg_type"] in ("display_data", "update_display_data"):
                    updates.setdefault(cell_index, []).append(msg["content"]["data"].get("text/plain", ""))
                return super().process_message(msg, cell, cell_index)

        notebook = nbformat.v4.new_notebook()
        for name, source in CELLS.items():
            tags = ["raises-exception"] if "fails" in name else []
            notebook.cells.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags}))
        Client(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
        if "RESOURCE_TRACKER_NOTEBOOK" in os.environ:
            nbformat.write(notebook, os.environ["RESOURCE_TRACKER_NOTEBOOK"])
        self._cells = dict(zip(CELLS, notebook.cells))
        self._updates = {name: updates.get(number, []) for number, name in enumerate(CELLS)}

    def outputs(self, name: str, kind: str) -> list[Any]:
        return [output for output in self._cells[name].outputs if output.output_type == kind]

    def live(self, name: str) -> list[str]:
        """Texts of the view of a cell."""
        return [text for text in self._updates[name] if text.startswith("Elapsed")]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Executed:
    return Executed(tmp_path_factory.mktemp("notebook"))


def test_cell_shows_its_value_and_its_statistics(notebook: Executed) -> None:
    (value,) = notebook.outputs("value", "execute_result")
    assert value.data["text/plain"] == "499999500000"
    (stats,) = notebook.outputs("value", "display_data")
    assert "process_memory" in stats.data["text/plain"]


@pytest.mark.parametrize("name", ["live cell", "live tracker"])
def test_live_view_is_updated_while_the_cell_runs_and_ends_with_the_tracker(notebook: Executed, name: str) -> None:
    shown = notebook.live(name)
    running = [text for text in shown if re.search(r", CPU [0-9.]+ CPUs, Memory [0-9.]+ [MG]iB$", text)]
    # At least one update in the middle; a busy machine may miss others.
    assert len(running) >= 1, shown
    assert re.fullmatch(r"Elapsed [0-9.]+ s, Mean CPU [0-9.]+ CPUs, Peak memory [0-9.]+ [MG]iB", shown[-1]), shown
    # One output, in its last state.
    (view,) = notebook.outputs(name, "display_data")
    assert view.data["text/plain"] == shown[-1] and "Peak memory <b>" in view.data["text/html"]


def test_live_cell_keeps_its_value(notebook: Executed) -> None:
    (value,) = notebook.outputs("live cell", "execute_result")
    assert value.data["text/plain"] == "50000000"


def test_failing_cell_has_one_traceback_of_the_cell(notebook: Executed) -> None:
    (error,) = notebook.outputs("cell fails", "error")
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    assert error.ename == "ZeroDivisionError" and text.count("Traceback (most recent call last)") == 1
    assert "return a / b" in text and "track_cell" not in text, text
    assert notebook.outputs("cell fails", "stream") == []


def test_cell_with_await_or_wrong_option_is_refused_before_it_runs(notebook: Executed) -> None:
    (printed,) = notebook.outputs("await fails", "stream")
    assert printed.text.startswith("UsageError: %%track_resources does not support `await`")
    (printed,) = notebook.outputs("wrong option fails", "stream")
    assert printed.text == "UsageError: usage: %%track_resources [INTERVAL] [--live]\n"


def test_refused_cell_ends_the_run_of_the_notebook(tmp_path: Path) -> None:
    cells = ["%load_ext resource_tracker", CELLS["await fails"]]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="UsageError"):
        nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()


@pytest.mark.parametrize("name", ["tracker", "report"])
def test_tracker_and_report_show_themselves_in_a_sandboxed_frame(notebook: Executed, name: str) -> None:
    (shown,) = notebook.outputs(name, "execute_result")
    html = shown.data["text/html"]
    frame = re.fullmatch(r'<iframe srcdoc="[^"]*" ([^<>]*)></iframe>', html)
    assert frame is not None, html[:200]
    for attribute in ('sandbox="allow-scripts"', 'width="100%"', 'height="700"'):
        assert attribute in frame[1], frame[1]


def test_unloaded_magic_is_gone(notebook: Executed) -> None:
    (printed,) = notebook.outputs("unloaded fails", "stream")
    assert "UsageError: Cell magic" in printed.text and "not found" in printed.text


def test_live_view_outside_of_a_notebook_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    from resource_tracker import ResourceTracker

    with ResourceTracker(interval=0.05, discover_cloud=False) as tracker:
        tracker.live()
        tracker.wait_for_samples(1)
    assert "a live view needs a notebook" in caplog.text
