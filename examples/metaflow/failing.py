"""A step that fails has its card too."""

from metaflow import FlowSpec, step, track_resources


class FailingFlow(FlowSpec):
    @track_resources
    @step
    def start(self):
        numbers = [list(range(100_000)) for _ in range(10)]
        raise RuntimeError(f"after {len(numbers)} lists")
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    FailingFlow()
