"""CPU load for examples and tests."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

__all__ = ["cpu_multi", "cpu_single"]


def cpu_single(duration: float = 1) -> None:
    """Keep one CPU busy for `duration` seconds.

    >>> cpu_single(duration=0.01)
    """
    end = time.monotonic() + duration
    while time.monotonic() < end:
        sum(range(10_000))


def cpu_multi(duration: float = 1, ncores: Optional[int] = None) -> None:
    """Keep `ncores` CPUs (all by default) busy for `duration` seconds, with one process each.

    >>> cpu_multi(duration=0.01, ncores=2)
    """
    from multiprocessing import Process

    workers = [Process(target=cpu_single, args=(duration,)) for _ in range(ncores or os.cpu_count() or 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
