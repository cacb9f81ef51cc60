"""A snapshot for storage as an artifact: a dict that stays gzipped until its first access."""

from __future__ import annotations

import gzip
import json

from .artifact import Call, first_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["Snapshot"]


def _unpack_first(method: Callable[..., Any]) -> Any:
    """Wrap a method of dict so that the snapshot is unpacked first."""

    def unpacked(self: Snapshot, *arguments: Any, **named: Any) -> Any:
        return method(self._unpack(), *arguments, **named)

    unpacked.__name__ = method.__name__
    unpacked.__doc__ = method.__doc__
    return unpacked


class Snapshot(dict):  # type: ignore[type-arg]
    """The dict of `ResourceTracker.snapshot()`, unpacked from gzipped JSON on first access.

    A day of samples is millions of Python objects as a dict, and a few MB as gzipped JSON.

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

    def __init__(self, packed: bytes, metadata: Optional[dict[str, Any]] = None) -> None:
        # Never empty: C code does not call the overridden methods, and treats a dict without keys as empty.
        super().__init__(metadata=metadata or {})
        #: Gzipped JSON; None after the first access, since the dict may have changed.
        self.packed: Optional[bytes] = packed

    @classmethod
    def of(cls, tracker: ResourceTracker) -> Snapshot:
        """Pack the recording of a tracker."""
        return cls(tracker._session.packed())

    def _unpack(self) -> Snapshot:
        if self.packed is not None:
            packed, self.packed = self.packed, None
            dict.update(self, json.loads(gzip.decompress(packed)))
        return self

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._unpack(), other._unpack() if isinstance(other, Snapshot) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None
    __contains__ = _unpack_first(dict.__contains__)
    __delitem__ = _unpack_first(dict.__delitem__)
    __getitem__ = _unpack_first(dict.__getitem__)
    __ior__ = _unpack_first(dict.__ior__)
    __iter__ = _unpack_first(dict.__iter__)
    __len__ = _unpack_first(dict.__len__)
    __or__ = _unpack_first(dict.__or__)
    __repr__ = _unpack_first(dict.__repr__)
    __reversed__ = _unpack_first(dict.__reversed__)
    __ror__ = _unpack_first(dict.__ror__)
    __setitem__ = _unpack_first(dict.__setitem__)
    clear = _unpack_first(dict.clear)
    get = _unpack_first(dict.get)
    items = _unpack_first(dict.items)
    keys = _unpack_first(dict.keys)
    pop = _unpack_first(dict.pop)
    popitem = _unpack_first(dict.popitem)
    setdefault = _unpack_first(dict.setdefault)
    update = _unpack_first(dict.update)
    values = _unpack_first(dict.values)

    def copy(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed
        if packed is None:
            packed = gzip.compress(json.dumps(dict(self.items())).encode(), 1)
        # Without this package the pickle is read as a plain dict.
        unpack = first_of(f"{__name__}.{as_packed.__name__}", gzip.decompress)
        return first_of(f"{__name__}.{Snapshot.__name__}", json.loads), (Call(unpack, packed),)


def as_packed(packed: bytes) -> bytes:
    """Return the packed snapshot as it is, where an environment without this package unpacks it."""
    return packed
