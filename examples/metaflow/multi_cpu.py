"""A step that requests four CPUs and uses two: the card shows both, and the `@resources` to request."""

from concurrent.futures import ProcessPoolExecutor

from metaflow import FlowSpec, resources, step, track_resources


def work(rounds: int) -> int:
    return sum(number % 7 for _ in range(rounds) for number in range(500_000))


class MultiCpuFlow(FlowSpec):
    @track_resources(interval=0.5)
    @resources(cpu=4, memory=4096)
    @step
    def start(self):
        with ProcessPoolExecutor(2) as pool:
            self.totals = list(pool.map(work, [10, 10]))
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    MultiCpuFlow()
