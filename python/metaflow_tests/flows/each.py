"""A foreach of 8, and a join that merges all artifacts and has its own card."""

import time

from metaflow import FlowSpec, card, current, resources, step, track_resources
from metaflow.cards import Markdown


class EachFlow(FlowSpec):
    @step
    def start(self):
        self.parts = list(range(8))
        self.next(self.part, foreach="parts")

    @resources(cpu=2, memory=4096)
    @track_resources(interval=0.05)
    @step
    def part(self):
        block = bytearray(b"x") * (self.input * 16 * 1024 * 1024)
        time.sleep(1)
        self.kept = len(block) * 0
        self.next(self.join)

    @card
    @step
    @track_resources
    def join(self, inputs):
        current.card.append(Markdown("# of the step's own"))
        self.merge_artifacts(inputs)
        assert self.kept == 0
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    EachFlow()
