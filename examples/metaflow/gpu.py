"""A step that requests a GPU. It also runs on a machine without one, and the card says that none was used."""

from metaflow import FlowSpec, resources, step, track_resources


class GpuFlow(FlowSpec):
    @track_resources(interval=0.5)
    @resources(gpu=1, memory=8192)
    @step
    def start(self):
        try:
            import torch

            device = "cuda" if torch.cuda.is_available() else "cpu"
            self.total = float(torch.ones(4096, 4096, device=device).matmul(torch.ones(4096, 1, device=device)).sum())
        except ImportError:
            self.total = float(sum(range(1_000_000)))
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    GpuFlow()
