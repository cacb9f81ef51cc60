"""A step with a card: python minimal.py run, then python minimal.py card view start"""

from time import sleep

from metaflow import FlowSpec, step, track_resources


class MinimalFlow(FlowSpec):
    @track_resources(interval=0.5)
    @step
    def start(self):
        numbers = list(range(1_000_000))
        sleep(1)
        self.total = sum(numbers)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    MinimalFlow()
