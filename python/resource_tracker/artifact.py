"""Pickles that can be read with this package, with the original package, and without either.

A pickle names the classes of its objects, and cannot be read where one of them is missing. The pickles made here
contain calls of the standard library instead: `pydoc.locate` finds a name of a package or returns None.
"""

from __future__ import annotations

from . import _native
from .tiny_data_frame import TinyDataFrame, _as_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Call", "Table", "first_of", "table"]


class Call:
    """A call of a function that is made when the pickle is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.arguments

    def __call__(self, *arguments: Any) -> Any:
        from copy import deepcopy

        # A copy is made like an object from a pickle, by `__reduce__`.
        return deepcopy(self)(*arguments)


def first_of(*candidates: Any) -> Call:
    """Return the first candidate that exists where the pickle is read: dotted names, and a function as the last."""
    from pydoc import locate

    found = [Call(locate, name) if isinstance(name, str) else name for name in candidates]
    return Call(next, Call(filter, None, found))


class Table(TinyDataFrame):
    """A table that is unpickled as a TinyDataFrame of either package, else as a dict of lists.

    >>> import pickle
    >>> pickle.loads(pickle.dumps(Table({"cpu_usage": [0.5]})))
    TinyDataFrame with 1 rows and 1 columns. First row as a dict: {'cpu_usage': 0.5}
    """

    @classmethod
    def of(cls, frame: TinyDataFrame) -> TinyDataFrame:
        """Return the columns of a frame as such a table."""
        return cls._of(frame._columns, frame._whole)

    def __reduce__(self) -> tuple[Any, ...]:
        names = (f"{__name__}.{table.__name__}", f"{TinyDataFrame.__module__}.{TinyDataFrame.__name__}")
        columns = {name: _as_list(column) for name, column in self._columns.items()}
        return first_of(*names, dict), (columns,)


def table(columns: dict[str, list[Any]]) -> TinyDataFrame:
    """Return the columns of a tracker as a frame. Columns of whole numbers are recognised by their names."""
    fractions = {metric["column"] for metric in _native.metrics() if metric["decimals"]}
    return TinyDataFrame._of(dict(columns), {name for name in columns if name not in fractions})
