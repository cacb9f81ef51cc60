"""Tracks a program and writes a report: python examples/standalone.py [REPORT]"""

import sys

from resource_tracker import ResourceTracker


def work() -> int:
    """Two seconds or so of one CPU, and some memory."""
    numbers = list(range(2_000_000))
    return sum(number * number % 7 for number in numbers for _ in range(3))


tracker = ResourceTracker(interval=0.2)
work()
tracker.stop()

print("needs:", tracker.recommend_resources())
print("peak memory: %.0f MiB" % (tracker.stats()["process_memory"]["max"] / 1024))
tracker.report().save(sys.argv[1] if len(sys.argv) > 1 else "report.html")
