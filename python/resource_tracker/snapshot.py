"""A snapshot that others keep for us: a dict to look into, and small and quick as long as nobody does."""

from __future__ import annotations

import gzip
import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, KeysView, ValuesView
    from typing import Any, Optional

    from .tracker import ResourceTracker

__all__ = ["Snapshot"]


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
            super().update(json.loads(gzip.decompress(packed)))
        return self

    def __getitem__(self, key: str) -> Any:
        return dict.__getitem__(self._read(), key)

    def __setitem__(self, key: str, value: Any) -> None:
        dict.__setitem__(self._read(), key, value)

    def __delitem__(self, key: str) -> None:
        dict.__delitem__(self._read(), key)

    def __contains__(self, key: object) -> bool:
        return dict.__contains__(self._read(), key)

    def __iter__(self) -> Iterator[str]:
        return dict.__iter__(self._read())

    def __len__(self) -> int:
        return dict.__len__(self._read())

    def __eq__(self, other: object) -> bool:
        return dict.__eq__(self._read(), other._read() if isinstance(other, Snapshot) else other)

    __hash__ = None

    def __repr__(self) -> str:
        return dict.__repr__(self._read())

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default."""
        return dict.get(self._read(), key, default)

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """As of any dict."""
        return dict.keys(self._read())

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """As of any dict."""
        return dict.values(self._read())

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """As of any dict."""
        return dict.items(self._read())

    def copy(self) -> dict[str, Any]:
        """A plain dict."""
        return dict(self.items())

    def __reduce__(self) -> tuple[Any, ...]:
        packed = self.packed
        if packed is None:
            packed = gzip.compress(json.dumps(dict(self.items())).encode(), 1)
        return Snapshot, (packed, dict.get(self, "metadata"))
