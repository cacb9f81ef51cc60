"""A flow whose step also runs from the code package."""

from time import sleep

from metaflow import FlowSpec, step, track_resources


class RemoteFlow(FlowSpec):
    @step
    def start(self):
        self.next(self.work)

    @track_resources(interval=0.1)
    @step
    def work(self):
        sleep(1)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    RemoteFlow()
