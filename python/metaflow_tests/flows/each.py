"""A foreach of 8 with a card of its own beside ours, and a join that merges all artifacts."""

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
    @card
    @step
    def part(self):
        block = bytearray(b"x") * (self.input * 16 * 1024 * 1024)
        time.sleep(0.3)
        self.kept = len(block) * 0
        current.card.append(Markdown("# of the step's own"))
        self.next(self.join)

    @step
    @track_resources
    def join(self, inputs):
        self.merge_artifacts(inputs)
        assert self.kept == 0
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    EachFlow()
