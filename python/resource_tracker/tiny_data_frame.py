"""A data frame without dependencies. Columns of numbers stay native until they are accessed as lists."""

from __future__ import annotations

import math
import operator
import os
from collections import namedtuple

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, NamedTuple, Optional, Union

    _Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
    _Stored = Union[list[Any], _native.Column]

__all__ = ["StatSpec", "TinyDataFrame"]


if TYPE_CHECKING:

    class _Spec(NamedTuple):
        column: str
        agg: Callable[[list[Any]], Any]
        agg_name: Optional[str] = None
        round: Optional[int] = None

else:
    # `typing` takes longer to import than this package.
    _Spec = namedtuple("StatSpec", ("column", "agg", "agg_name", "round"), defaults=(None, None))


class StatSpec(_Spec):
    """A statistic of a column: aggregate function, optional name, optional number of decimals.

    >>> StatSpec("cpu", max, round=2)
    StatSpec(column='cpu', agg=<built-in function max>, agg_name=None, round=2)
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """Name of the statistic: `agg_name`, or the name of the function."""
        return self.agg_name or str(getattr(self.agg, "__name__", self.agg))


class TinyDataFrame:
    """Rows and columns of any Python values; columns of numbers are stored natively.

    >>> df = TinyDataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]})
    >>> df
    TinyDataFrame with 3 rows and 2 columns. First row as a dict: {'a': 1, 'b': 'x'}
    >>> df["a"], df[0], df[1:]["b"]
    ([1, 2, 3], {'a': 1, 'b': 'x'}, ['y', 'z'])
    >>> print(df.head(2))
    TinyDataFrame with 2 rows and 2 columns:
    a | b
    --+--
    1 | x
    2 | y
    >>> df.stats([StatSpec("a", max), StatSpec("a", sum, agg_name="total")])
    {'a': {'max': 3, 'total': 6}}
    """

    def __init__(
        self,
        data: Union[Mapping[str, Sequence[Any]], Sequence[Mapping[str, Any]], None] = None,
        csv_file_path: Optional[_Path] = None,
        retries: int = 0,
        retry_delay: float = 0.1,
    ) -> None:
        if (data is None) == (csv_file_path is None):
            raise AssertionError("give either data or csv_file_path, not both")
        self._columns: dict[str, _Stored] = {}
        #: Columns of whole numbers, which CSV files write without a decimal point.
        self._whole: set[str] = set()
        if csv_file_path is not None:
            columns, whole = _read_with_retries(os.fsdecode(csv_file_path), retries, retry_delay)
            self._fill(columns)
            self._whole = set(whole)
        elif isinstance(data, dict) or hasattr(data, "keys"):
            self._fill({name: _as_column(values) for name, values in data.items()})  # type: ignore[union-attr]
        else:
            rows = list(data or ())
            names = dict.fromkeys(name for row in rows for name in row)
            self._fill({name: [row.get(name) for row in rows] for name in names})

    def _fill(self, columns: dict[str, _Stored]) -> None:
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise ValueError("All columns must have the same length")
        self._columns = columns
        self._whole = {name for name, column in columns.items() if not isinstance(column, list) and column.whole}

    @classmethod
    def _of(cls, columns: dict[str, _Stored], whole: Optional[set[str]] = None) -> TinyDataFrame:
        frame = cls.__new__(cls)
        frame._fill(columns)
        if whole is not None:
            frame._whole = whole & set(columns)
        return frame

    @property
    def columns(self) -> list[str]:
        """Column names, in order. A list of new names can be assigned."""
        return list(self._columns)

    @columns.setter
    def columns(self, names: Sequence[str]) -> None:
        if len(names) != len(self._columns):
            raise ValueError(f"{len(names)} names for {len(self._columns)} columns")
        self.rename(dict(zip(self._columns, names)))

    def __len__(self) -> int:
        return next((len(column) for column in self._columns.values()), 0)

    def _values(self, name: str) -> list[Any]:
        try:
            column = self._columns[name]
        except KeyError:
            raise KeyError(f"Column '{name}' not found") from None
        if not isinstance(column, list):
            # The list replaces the native column, so that changes to the list are kept.
            column = self._columns[name] = column.to_list()
        return column

    def _row(self, index: int) -> dict[str, Any]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"row index {index} out of range: the frame has {len(self)} rows")
        return {
            name: column[index] if isinstance(column, list) else column.get(index)
            for name, column in self._columns.items()
        }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self._row(index) for index in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._values(key)
        if isinstance(key, bool):
            raise TypeError(f"Invalid key type: {type(key)}")
        if isinstance(key, int):
            return self._row(key)
        if isinstance(key, slice):
            return self._of(
                {
                    name: column[key] if isinstance(column, list) else column.slice(key)
                    for name, column in self._columns.items()
                },
                self._whole,
            )
        if isinstance(key, (list, tuple)) and all(isinstance(name, str) for name in key):
            for name in key:
                if name not in self._columns:
                    raise KeyError(f"Column '{name}' not found")
            picked = {name: self._columns[name] for name in key}
            copies = {name: column[:] if isinstance(column, list) else column for name, column in picked.items()}
            return self._of(copies, self._whole)
        raise TypeError(f"Invalid key type: {type(key)}")

    def __setitem__(self, key: str, value: Sequence[Any]) -> None:
        if not isinstance(key, str):
            raise TypeError(f"Invalid key type: {type(key)}")
        column = _as_column(value)
        if self._columns and len(column) != len(self):
            raise ValueError(f"Column '{key}' has {len(column)} values, the frame has {len(self)} rows")
        self._columns[key] = column
        self._whole.discard(key)

    def head(self, n: int = 5) -> TinyDataFrame:
        """The first `n` rows."""
        return self[: max(n, 0)]  # type: ignore[no-any-return]

    def tail(self, n: int = 5) -> TinyDataFrame:
        """The last `n` rows."""
        return self[max(len(self) - max(n, 0), 0) :]  # type: ignore[no-any-return]

    def rename(self, columns: Mapping[str, str]) -> TinyDataFrame:
        """Rename columns in place.

        >>> TinyDataFrame({"a": [1]}).rename({"a": "b"}).columns
        ['b']
        """
        for name in columns:
            if name not in self._columns:
                raise KeyError(f"Column '{name}' not found")
        renamed = [columns.get(name, name) for name in self._columns]
        if len(set(renamed)) < len(renamed):
            raise ValueError("two columns would have the same name")
        self._whole = {columns.get(name, name) for name in self._whole}
        self._columns = dict(zip(renamed, self._columns.values()))
        return self

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows as a list of dicts.

        >>> TinyDataFrame({"a": [1, 2]}).to_dict()
        [{'a': 1}, {'a': 2}]
        """
        lists = map(_as_list, self._columns.values())
        return [dict(zip(self._columns, row)) for row in zip(*lists)]

    def to_csv(self, csv_file_path: Optional[_Path] = None, quote_strings: bool = True) -> Optional[str]:
        r"""Return the frame as CSV text, or write it to a file.

        >>> TinyDataFrame({"a": [1, None], "b": ["x", "y"]}).to_csv()
        '"a","b"\n1,"x"\n,"y"\n'
        """
        native = {name: column for name, column in self._columns.items() if not isinstance(column, list)}
        if len(native) == len(self._columns) and quote_strings:
            text = _native.write_csv(native)
        else:
            text = "".join(self._lines(quote_strings))
        if csv_file_path is None:
            return text
        # File names may contain surrogates, which cannot be encoded in UTF-8.
        _native.save_text(text.encode(errors="backslashreplace").decode(), os.fsdecode(csv_file_path))
        return None

    def _lines(self, quote_strings: bool) -> Iterator[str]:
        if self._columns:
            yield ",".join(_cell(name, quote_strings, False) for name in self._columns) + "\n"
        for row in self:
            cells = [_cell(value, quote_strings, name in self._whole) for name, value in row.items()]
            # An empty line would not be read as a row.
            yield (",".join(cells) or '""') + "\n"

    def stats(self, specs: Sequence[StatSpec]) -> dict[str, dict[str, Any]]:
        """Return statistics by column and name. Cells that were not measured are left out."""
        stats: dict[str, dict[str, Any]] = {}
        for spec in specs:
            measured = [value for value in self._values(spec.column) if value is not None]
            value = spec.agg(measured)
            if spec.round is not None and value is not None:
                value = round(value, spec.round)
            stats.setdefault(spec.column, {})[spec.name] = value
        return stats

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export through the Arrow PyCapsule interface (polars, pyarrow and others), without an object per cell."""
        return _native.arrow_stream(self._columns)

    def to_arrow(self, typed: bool = False) -> Any:
        """Convert to a `pyarrow.Table`; needs pyarrow. With `typed`, `timestamp` is a time and counts are integers."""
        import pyarrow

        return pyarrow.table(_Typed(self) if typed else self)

    def to_polars(self, typed: bool = False) -> Any:
        """Convert to a `polars.DataFrame`; needs polars. With `typed`, as in `to_arrow`."""
        import polars

        return polars.DataFrame(_Typed(self) if typed else self)

    def to_pandas(self, typed: bool = False) -> Any:
        """Convert to a `pandas.DataFrame`, with NaN where nothing was measured; needs pandas.

        With `typed`, `timestamp` is a time in UTC and counts are integers; `Int64` if cells are missing, else `int64`.
        """
        import numpy
        import pandas

        columns: dict[str, Any] = {
            name: column if isinstance(column, list) else numpy.frombuffer(column.to_bytes(), dtype="<f8")
            for name, column in self._columns.items()
        }
        for name in self._times() if typed else ():
            moments = numpy.array(columns[name], dtype="<f8") * 1e6
            columns[name] = pandas.to_datetime(moments.round(), unit="us", utc=True)
        for name in self._whole if typed else ():
            numbers = numpy.array(columns[name], dtype="<f8")
            known = numbers[~numpy.isnan(numbers)]
            if (known % 1 == 0).all():
                kind = "int64" if len(known) == len(numbers) else "Int64"
                columns[name] = pandas.array(numbers).astype(kind)
        return pandas.DataFrame(columns)

    def _times(self) -> set[str]:
        """Return the columns that are Unix seconds."""

        def is_time(column: _Stored) -> bool:
            return not isinstance(column, list) or all(value is None or _is_numeric([value]) for value in column)

        return {name for name in ("timestamp", "Timestamp") if name in self._columns and is_time(self._columns[name])}

    def __repr__(self) -> str:
        text = f"TinyDataFrame with {len(self)} rows and {len(self._columns)} columns."
        return f"{text} First row as a dict: {self[0]}" if len(self) else text

    def __str__(self) -> str:
        if not self._columns or not len(self):
            return "Empty dataframe"
        shown = [list(map(_shown, row.values())) for row in self.head(10)]
        names = list(map(_shown, self._columns))
        to_right = [_is_numeric([row[name] for row in self.head(10)]) for name in self._columns]
        widths = [max(len(name), *(len(row[at]) for row in shown)) for at, name in enumerate(names)]

        def line(cells: list[str]) -> str:
            padded = zip(cells, widths, to_right)
            return " | ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in padded)

        lines = [f"TinyDataFrame with {len(self)} rows and {len(names)} columns:", line(names)]
        lines.append("-+-".join("-" * width for width in widths))
        lines.extend(line(row) for row in shown)
        if len(self) > 10:
            lines.append("...")
        return "\n".join(text.rstrip() if at != 2 else text for at, text in enumerate(lines))

    def _repr_html_(self) -> str:
        from html import escape

        head = "".join(f"<th>{escape(_shown(name))}</th>" for name in self._columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(value))}</td>" for value in row.values()) + "</tr>"
            for row in self.head(10)
        )
        size = f"<p>{len(self)} rows × {len(self._columns)} columns</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{size}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TinyDataFrame):
            return NotImplemented
        return self.columns == other.columns and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        # The format of the original package, which ignores `_whole`. A subclass may have more attributes.
        columns = {"columns": self.columns, "_data": [_as_list(column) for column in self._columns.values()]}
        return {**{name: value for name, value in self.__dict__.items() if name != "_columns"}, **columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "_data" in state:
            state = {"_whole": set(), **state}
            state["_columns"] = dict(zip(state.pop("columns"), state.pop("_data")))
        self.__dict__.update(state)


class _Typed:
    """A frame for Arrow, with times and integers."""

    def __init__(self, frame: TinyDataFrame) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        frame = self._frame
        return _native.arrow_stream(frame._columns, frame._times(), frame._whole)


def _as_list(column: _Stored) -> list[Any]:
    return column if isinstance(column, list) else column.to_list()


def _as_column(values: Any) -> _Stored:
    return values if isinstance(values, (list, _native.Column)) else list(values)


def _shown(value: Any) -> str:
    if value is None:
        return ""
    try:
        return str(value)
    except Exception:  # one broken `__str__` must not hide the other values
        return f"<{type(value).__name__}>"


def _is_numeric(values: list[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(not isinstance(value, bool) and _as_number(value) is not None for value in known)


def _as_number(value: Any) -> Union[int, float, None]:
    """Convert to a Python number: numpy integers are not `int`, and numpy floats print their type."""
    # Test the type of the value: a class as a cell has these methods too, but is not a number.
    kind = type(value)
    try:
        if hasattr(kind, "__index__"):
            return operator.index(value)
        return float(value) if hasattr(kind, "is_integer") else None
    except Exception:  # a value without a number is shown as text
        return None


def _cell(value: Any, quote_strings: bool, whole: bool) -> str:
    if value is None:
        return ""
    number = _as_number(value)
    if isinstance(number, float):
        return _native.number_as_text(number, whole) if math.isfinite(number) else repr(number)
    text = _shown(value)
    if number is not None:
        return text
    if quote_strings or any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _read_with_retries(path: str, retries: int, retry_delay: float) -> tuple[dict[str, _Stored], list[str]]:
    import time

    for attempt in range(max(retries, 0) + 1):
        try:
            return _native.read_csv(_read(path))
        except (OSError, ValueError):
            if attempt >= retries:
                raise
            time.sleep(retry_delay)
    raise AssertionError("the loop returns or raises")


def _read(path: str) -> bytes:
    if path.startswith(("http://", "https://", "ftp://", "file://")):
        from urllib.request import urlopen

        with urlopen(path) as answer:
            content: bytes = answer.read()
        return content
    with open(path, "rb") as file:
        return file.read()
