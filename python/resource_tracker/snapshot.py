"""A snapshot that others keep for us: a dict to look into, and small and quick as long as nobody does."""

from __future__ import annotations

import gzip
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["Snapshot"]


def _read_first(method: Callable[..., Any]) -> Any:
    """A method of dict that sees all keys."""

    def of_all(self: Snapshot, *arguments: Any, **named: Any) -> Any:
        return method(self._read(), *arguments, **named)

    of_all.__name__ = method.__name__
    of_all.__doc__ = method.__doc__
    return of_all


class Snapshot(dict):  # type: ignore[type-arg]
    """What `ResourceTracker.snapshot()` gives, read from gzipped JSON when it is first looked into.

    A day of samples is millions of Python objects as a dict, and some MB like this.

    >>> from resource_tracker import ResourceTracker
    >>> with ResourceTracker(interval=0.05) as tracker:
    ...     tracker.wait_for_samples(1)
    >>> snapshot = Snapshot.of(tracker)
    >>> snapshot["metadata"]["interval"]
    0.05
    >>> sorted(snapshot)[:2]
    ['cloud_info', 'extra_metrics']
    >>> ResourceTracker.from_snapshot(snapshot).n_samples == tracker.n_samples
    True
    """

    def __init__(self, packed: bytes, metadata: dict[str, Any]) -> None:
        # Never empty: C code takes a dict of no keys for what it is.
        super().__init__(metadata=metadata)
        #: Gzipped JSON; None once it was read, since what was read may have been changed.
        self.packed: Optional[bytes] = packed

    @classmethod
    def of(cls, tracker: ResourceTracker) -> Snapshot:
        """All that a tracker has recorded."""
        session = tracker._session
        return cls(session.packed(), {"start_time": session.start_time, "stop_time": session.stop_time})

    def _read(self) -> Snapshot:
        if self.packed is not None:
            packed, self.packed = self.packed, None
            dict.update(self, json.loads(gzip.decompress(packed)))
        return self

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._read(), other._read() if isinstance(other, Snapshot) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
    __contains__ = _read_first(dict.__contains__)
    __delitem__ = _read_first(dict.__delitem__)
    __getitem__ = _read_first(dict.__getitem__)
    __ior__ = _read_first(dict.__ior__)
    __iter__ = _read_first(dict.__iter__)
    __len__ = _read_first(dict.__len__)
    __or__ = _read_first(dict.__or__)
    __repr__ = _read_first(dict.__repr__)
    __reversed__ = _read_first(dict.__reversed__)
    __ror__ = _read_first(dict.__ror__)
    __setitem__ = _read_first(dict.__setitem__)
    clear = _read_first(dict.clear)
    get = _read_first(dict.get)
    items = _read_first(dict.items)
    keys = _read_first(dict.keys)
    pop = _read_first(dict.pop)
    popitem = _read_first(dict.popitem)
    setdefault = _read_first(dict.setdefault)
    update = _read_first(dict.update)
    values = _read_first(dict.values)

    def copy(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed
        if packed is None:
            packed = gzip.compress(json.dumps(dict(self.items())).encode(), 1)
        return Snapshot, (packed, dict.get(self, "metadata"))
