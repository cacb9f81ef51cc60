"""Tracks a function: python examples/decorator.py"""

from resource_tracker import track_resources


@track_resources(interval=0.2)
def train(rounds: int) -> int:
    return sum(number % 7 for _ in range(rounds) for number in range(1_000_000))


train(10)
print(train.resource_tracker.stats()["process_cpu_usage"])
