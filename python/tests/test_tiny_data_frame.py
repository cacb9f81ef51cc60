"""TinyDataFrame and StatSpec: their documented behaviour."""

from __future__ import annotations

import copy
import http.server
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from resource_tracker import _native
from resource_tracker.tiny_data_frame import StatSpec, TinyDataFrame


@pytest.fixture
def frame() -> TinyDataFrame:
    return TinyDataFrame({"a": [1, 2, 3, 4], "b": ["w", "x", "y", "z"], "c": [0.5, 1.5, 2.5, 3.5]})


def test_rows_or_columns_give_the_same_frame(frame: TinyDataFrame) -> None:
    assert TinyDataFrame(frame.to_dict()) == frame
    assert TinyDataFrame([{"a": 1}, {"b": 2}]).to_dict() == [{"a": 1, "b": None}, {"a": None, "b": 2}]


def test_exactly_one_of_data_and_path_is_required() -> None:
    with pytest.raises(AssertionError):
        TinyDataFrame()
    with pytest.raises(AssertionError):
        TinyDataFrame(data=[], csv_file_path="x.csv")


def test_length_iteration_and_columns(frame: TinyDataFrame) -> None:
    assert len(frame) == 4
    assert [row["b"] for row in frame] == ["w", "x", "y", "z"]
    assert frame.columns == ["a", "b", "c"]
    assert len(TinyDataFrame(data=[])) == 0


def test_getitem_accepts_names_lists_slices_and_indices(frame: TinyDataFrame) -> None:
    assert frame["a"] == [1, 2, 3, 4]
    assert frame[["c", "a"]].columns == ["c", "a"]
    assert frame[1:3]["b"] == ["x", "y"]
    assert frame[::2]["a"] == [1, 3]
    assert frame[0] == {"a": 1, "b": "w", "c": 0.5}
    assert frame[-1]["b"] == "z"
    with pytest.raises(KeyError, match="Column 'x' not found"):
        frame["x"]
    with pytest.raises(KeyError, match="Column 'x' not found"):
        frame[["a", "x"]]
    with pytest.raises(IndexError, match="row index 4 out of range: the frame has 4 rows"):
        frame[4]
    for key in (1.5, None, {"a"}):
        with pytest.raises(TypeError):
            frame[key]


def test_column_of_another_length_is_rejected(frame: TinyDataFrame) -> None:
    frame["d"] = [9, 8, 7, 6]
    assert frame["d"] == [9, 8, 7, 6]
    with pytest.raises(ValueError):
        frame["e"] = [1]
    with pytest.raises(ValueError):
        TinyDataFrame({"a": [1, 2], "b": [1]})


def test_changes_to_a_column_list_are_kept() -> None:
    frame = TinyDataFrame(csv_file_path=_csv("a\n1\n2\n"))
    frame["a"][0] = 7.0
    assert frame["a"] == [7.0, 2.0]


def test_head_tail_and_rename(frame: TinyDataFrame) -> None:
    long = TinyDataFrame({"a": list(range(20))})
    assert (long.head()["a"], long.tail()["a"]) == ([0, 1, 2, 3, 4], [15, 16, 17, 18, 19])
    assert (len(long.head(0)), len(long.tail(0)), len(long.head(99)), len(long.tail(99))) == (0, 0, 20, 20)
    assert frame.rename({"a": "A"}) is frame
    assert frame.columns == ["A", "b", "c"]
    with pytest.raises(KeyError):
        frame.rename({"nothing": "x"})
    with pytest.raises(ValueError):
        frame.rename({"A": "b"})


def _csv(text: str) -> str:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".csv", delete=False) as file:
        file.write(text)
    return file.name


def test_csv_keeps_integers_and_quotes_text(frame: TinyDataFrame, tmp_path: Path) -> None:
    assert frame[:1].to_csv() == '"a","b","c"\n1,"w",0.5\n'
    assert frame[:1].to_csv(quote_strings=False) == "a,b,c\n1,w,0.5\n"
    path = tmp_path / "frame.csv"
    assert frame.to_csv(str(path)) is None
    assert path.read_text() == frame.to_csv()
    assert TinyDataFrame({"a": ['say "x"', "1,2"]}).to_csv() == '"a"\n"say ""x"""\n"1,2"\n'
    assert TinyDataFrame({"a": [1, None]}).to_csv() == '"a"\n1\n""\n'


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_path_can_be_str_bytes_or_path(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    path = kind(tmp_path / "frame.csv")
    TinyDataFrame({"a": [1]}).to_csv(path)
    assert TinyDataFrame(csv_file_path=path)["a"] == [1.0]


def test_csv_gives_floats_and_text() -> None:
    frame = TinyDataFrame(csv_file_path=_csv('"a","b"\n1,"x"\n2.5,"y"\n'))
    assert frame.to_dict() == [{"a": 1.0, "b": "x"}, {"a": 2.5, "b": "y"}]
    assert isinstance(frame["a"][0], float)
    numbers = TinyDataFrame(csv_file_path=_csv('"a","b"\n1,2.5\n,3.0\n'))
    assert numbers.to_dict() == [{"a": 1.0, "b": 2.5}, {"a": None, "b": 3.0}]


@pytest.mark.parametrize(
    "columns",
    [
        {"id": ["001", "002"]},
        {"a": ["", ""]},
        {"n": ["1", "nan"], "x": [0.5, None]},
        {"text": ["x", ""], "n": [1.5, None]},
        {"a": [1.0, "2", None, ""], "b": [0.0, 1.0, 2.0, 3.0]},
        {"a": [1.0, None]},
    ],
)
def test_text_and_numbers_survive_a_csv_round_trip(columns: dict[str, list[Any]]) -> None:
    assert (
        TinyDataFrame(csv_file_path=_csv(TinyDataFrame(columns).to_csv())).to_dict() == TinyDataFrame(columns).to_dict()
    )


@pytest.mark.parametrize(
    "text", ['"n","t"\n1,"x"\n-2,"1"\n', '"n","t"\n1.0,"x"\n,""\n', '"n"\n1\n"x"\ninf\n', '"n"\n1\n""\n']
)
def test_csv_is_written_as_it_was_read(text: str) -> None:
    frame = TinyDataFrame(csv_file_path=_csv(text))
    assert frame.to_csv() == text
    assert frame.columns and [frame[name] for name in frame.columns] and frame.to_csv() == text


def test_access_to_a_column_does_not_change_the_csv() -> None:
    text = '"x","n"\n0.000041,10000000000000000000.0\n1e-7,1\n1e300,-1\n'
    frame = TinyDataFrame(csv_file_path=_csv(text))
    native = frame.to_csv()
    assert native is not None and native.startswith('"x","n"\n0.000041,')
    assert frame["x"] and frame["n"] and frame.to_csv() == native
    assert TinyDataFrame({"x": [4.1e-05, float("-inf")]}).to_csv() == '"x"\n0.000041\n-inf\n'


def test_number_column_stays_native_beside_text() -> None:
    frame = TinyDataFrame(csv_file_path=_csv('"n","t"\n1,"x"\n2,"y"\n'))
    assert isinstance(frame._columns["n"], _native.Column) and frame["n"] == [1.0, 2.0]


def test_incomplete_last_row_is_left_out() -> None:
    assert len(TinyDataFrame(csv_file_path=_csv('"a","b"\n1,2\n3'))) == 1
    assert len(TinyDataFrame(csv_file_path=_csv('"a","b"\n1,"x"\n3'))) == 1


def test_csv_error_names_the_line() -> None:
    with pytest.raises(ValueError, match="line 3 has 3 cells"):
        TinyDataFrame(csv_file_path=_csv("a,b\n1,2\n1,2,3\n1,2\n"))
    with pytest.raises(FileNotFoundError):
        TinyDataFrame(csv_file_path="/no/such/file.csv")


def test_missing_csv_file_is_retried(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    threading.Timer(0.2, path.write_text, ["a\n1\n"]).start()
    assert len(TinyDataFrame(csv_file_path=str(path), retries=50, retry_delay=0.05)) == 1


def test_csv_is_read_from_a_url() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a,b\n1,2\n")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        frame = TinyDataFrame(csv_file_path=f"http://127.0.0.1:{server.server_port}/x.csv")
        server.shutdown()
    assert frame.to_dict() == [{"a": 1.0, "b": 2.0}]


def test_stats_are_named_and_rounded(frame: TinyDataFrame) -> None:
    specs = [StatSpec("c", max), StatSpec("c", lambda values: sum(values) / 3, agg_name="third", round=1)]
    assert frame.stats(specs) == {"c": {"max": 3.5, "third": 2.7}}
    assert TinyDataFrame({"a": [1, None, 3]}).stats([StatSpec("a", sum)]) == {"a": {"sum": 4}}
    with pytest.raises(KeyError):
        frame.stats([StatSpec("nothing", max)])


def test_repr_and_str_have_the_documented_format() -> None:
    frame = TinyDataFrame({"number": list(range(12)), "text": [f"t{n}" for n in range(12)]})
    assert repr(frame) == ("TinyDataFrame with 12 rows and 2 columns. First row as a dict: {'number': 0, 'text': 't0'}")
    lines = str(frame).split("\n")
    assert lines[:4] == [
        "TinyDataFrame with 12 rows and 2 columns:",
        "number | text",
        "-------+-----",
        "     0 | t0",
    ]
    assert (len(lines), lines[-1]) == (14, "...")
    assert str(TinyDataFrame(data=[])) == "Empty dataframe"


def test_str_and_csv_never_fail(tmp_path: Path) -> None:
    class Silent:
        def __str__(self) -> str:
            raise RuntimeError

    assert "<Silent>" in str(TinyDataFrame({"a": [Silent(), None, 1]}))

    class Numberless:
        def __index__(self) -> int:
            raise RuntimeError

    odd = TinyDataFrame({"a": [Silent(), float, int, Numberless, Numberless(), 10**5000, {1}]})
    assert str(odd).count("\n") == 9
    assert odd.to_csv().count("\n") == 8 and "\"<class 'float'>\"\n" in odd.to_csv()
    assert str(TinyDataFrame({"t": [float]})).endswith("<class 'float'>")
    TinyDataFrame({"name": ["\udcff"]}).to_csv(str(tmp_path / "odd.csv"))
    assert (tmp_path / "odd.csv").read_text() == '"name"\n"\\udcff"\n'
    assert "&lt;b&gt;" in TinyDataFrame({"<b>": [1]})._repr_html_()


def test_str_shows_any_names_and_numbers() -> None:
    assert str(TinyDataFrame({1: [1]})).endswith("\n1\n-\n1")  # type: ignore[dict-item]
    assert str(TinyDataFrame({"wide": [None, 1, 22]})).split("\n")[3:] == ["", "   1", "  22"]
    assert str(TinyDataFrame({"wide": [True, None]})).split("\n")[3] == "True"


def test_numpy_numbers_are_written_unquoted() -> None:
    numpy = pytest.importorskip("numpy")
    values = [numpy.float64(1.5), numpy.int64(3), numpy.float32(0.25), None, "x"]
    assert TinyDataFrame({"a": values, "b": values}).to_csv() == '"a","b"\n1.5,1.5\n3,3\n0.25,0.25\n,\n"x","x"\n'


def test_non_finite_numbers_are_read_as_numbers() -> None:
    json = TinyDataFrame(csv_file_path=_csv("a,b,c\nInfinity,-Infinity,x\nNaN,1,y\n"))
    assert json["a"][0] == float("inf") and json["a"][1] != json["a"][1] and json["b"] == [float("-inf"), 1]
    frame = TinyDataFrame(csv_file_path=_csv("a,b\ninf,-inf\nnan,1\n"))
    assert frame["a"][0] == float("inf") and frame["a"][1] != frame["a"][1] and frame["b"] == [float("-inf"), 1]


class Mine(TinyDataFrame):
    """A subclass with its own attributes."""


def test_frames_and_specs_pickle_and_copy(frame: TinyDataFrame) -> None:
    native = TinyDataFrame(csv_file_path=_csv("a,b\n1,2.5\n,4\n"))
    for original in (frame, native):
        for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
            assert twin == original
            assert twin.to_csv() == original.to_csv()
    spec = StatSpec("a", max, "most", 2)
    assert pickle.loads(pickle.dumps(spec)) == spec == copy.deepcopy(spec)
    mine = Mine({"a": [1]})
    mine.note = "kept"  # type: ignore[attr-defined]
    for again in (pickle.loads(pickle.dumps(mine)), copy.copy(mine)):
        assert type(again) is Mine and again == mine and again.note == "kept"
