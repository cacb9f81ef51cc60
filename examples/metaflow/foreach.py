"""Each task of a foreach has its own card. In the statistics of earlier runs, the tasks of a run count as one."""

from metaflow import FlowSpec, step, track_resources


class ForeachFlow(FlowSpec):
    @step
    def start(self):
        self.sizes = [100_000, 200_000, 400_000]
        self.next(self.work, foreach="sizes")

    @track_resources(interval=0.5)
    @step
    def work(self):
        self.total = sum(number % 7 for number in range(10 * self.input))
        self.next(self.join)

    @step
    def join(self, inputs):
        self.totals = [task.total for task in inputs]
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    ForeachFlow()
