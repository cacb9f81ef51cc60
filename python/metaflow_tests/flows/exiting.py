"""A step that exits its process."""

import sys

from metaflow import FlowSpec, step, track_resources


class ExitingFlow(FlowSpec):
    @track_resources
    @step
    def start(self):
        sys.exit(3)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    ExitingFlow()
