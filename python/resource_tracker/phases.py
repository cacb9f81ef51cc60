"""Blocks of a program that are phases of its recording."""

from __future__ import annotations

from . import _native


def mark(name: str) -> None:
    """Start a phase of the run around this program, as `resource-tracker mark` does. No effect outside of a run."""
    _native.mark(str(name))


class Phase:
    """The `with` block of `ResourceTracker.phase`: after it, the phase that the process marked before goes on."""

    def __init__(self, session: _native.Session, name: str) -> None:
        """Remember the name; the phase begins with the block."""
        self._session = session
        self._name = name

    def __enter__(self) -> None:
        """Begin the phase."""
        self._before = self._session.mark(self._name)

    def __exit__(self, *error: object) -> None:
        """Go back to the phase before."""
        self._session.mark(self._before)
