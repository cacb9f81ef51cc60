"""A successful retry, a step of 0.2 s without a card, a caught step, and a tracker that cannot start."""

import time

from metaflow import FlowSpec, catch, current, resources, retry, step, track_resources


class StepsFlow(FlowSpec):
    @step
    def start(self):
        self.next(self.shaky)

    @retry(times=2, minutes_between_retries=0)
    @track_resources
    @step
    def shaky(self):
        time.sleep(0.1)
        if current.retry_count < 1:
            raise ValueError("not yet")
        self.next(self.short)

    @resources(cpu=2, memory=512)
    @step
    @track_resources(create_card=False, artifact_name="of_short", interval=0.02)
    def short(self):
        time.sleep(0.2)
        self.next(self.caught)

    @catch(var="problem", print_exception=False)
    @track_resources(artifact_name="of_caught")
    @step
    def caught(self):
        raise ValueError("always")
        self.next(self.untracked)

    @track_resources(interval=0, artifact_name="of_untracked")
    @step
    def untracked(self):
        self.ran = True
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    StepsFlow()
