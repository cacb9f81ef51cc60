"""Mistakes that a type checker must find, marked with `# error`; checked by test_types.py."""

from resource_tracker import track_resources


@track_resources(interval=1)
def plain(n: int) -> float:
    return n


class Model:
    @track_resources
    def fit(self, rows: int) -> str:
        return str(rows)


plain("x")  # error
plain(1, 2)  # error
text: str = plain(1)  # error
Model().fit("x")  # error
track_resources(intervall=1)  # error
