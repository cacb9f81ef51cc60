"""The default statistics of a run."""

from __future__ import annotations

from .tiny_data_frame import StatSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Optional


def mean(values: Sequence[float]) -> Optional[float]:
    """Return the arithmetic mean; None for an empty list."""
    return sum(values) / len(values) if values else None


def duration(values: Sequence[float]) -> Optional[float]:
    """Return the largest value minus the smallest; None for an empty list."""
    return max(values) - min(values) if values else None


#: The default statistics. The core computes them: means weighted by the length of rows, and peaks between rows.
DEFAULT_STATS: list[StatSpec] = [
    *(
        StatSpec(f"process_{column}", agg, round=2)
        for column in ("cpu_usage", "memory", "gpu_usage", "gpu_vram", "gpu_utilized")
        for agg in (mean, max)
    ),
    StatSpec("system_disk_space_used_gb", max, round=2),
    StatSpec("system_net_recv_bytes", sum),
    StatSpec("system_net_sent_bytes", sum),
    StatSpec("timestamp", duration, agg_name="duration"),
]


def is_default(specs: list[StatSpec]) -> bool:
    """Return whether this is the default list, of this package or of the original one."""

    def key(spec: StatSpec) -> tuple[Any, ...]:
        agg: Any = spec.agg
        if (getattr(agg, "__module__", None), spec.name) == ("statistics", "mean"):
            agg = mean
        return spec.column, agg, spec.name, spec.round

    *others, last = DEFAULT_STATS
    if list(map(key, specs[:-1])) != list(map(key, others)):
        return False
    given = specs[-1]
    if (given.column, given.name, given.round) != (last.column, last.name, last.round):
        return False
    # The original package has a lambda here, and lambdas are never equal: compare a result instead.
    try:
        return bool(given.agg([1.0, 3.5]) == 2.5)
    except Exception:  # not a function of two numbers, so not the default
        return False
