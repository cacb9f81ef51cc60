"""A step that fails."""

from time import sleep

from metaflow import FlowSpec, step, track_resources


class FailingFlow(FlowSpec):
    @track_resources
    @step
    def start(self):
        sleep(0.3)
        raise ValueError("<b>on purpose</b>")
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    FailingFlow()
