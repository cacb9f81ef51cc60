"""Parts of a tracker that need no tracker: its native session, its temporary files, the log."""

from __future__ import annotations

import os
import sys

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any, Optional, Union

    from .tiny_data_frame import TinyDataFrame

    _Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
    _Paths = Union[_Path, Iterable[_Path]]

_METHODS = (None, "fork", "spawn", "forkserver")


class _CsvFiles:
    """Temporary CSV files of the tables, for programs that read the files of the original package."""

    def __init__(self) -> None:
        #: Path and creator of each file. A forked child must not remove the files of its parent.
        self._files: dict[str, tuple[str, int]] = {}

    def write(self, name: str, table: TinyDataFrame) -> str:
        """Write the table and return the path. A table without rows leaves an existing file unchanged."""
        if name not in self._files:
            import tempfile

            handle, path = tempfile.mkstemp(prefix=f"resource-tracker-{name}-", suffix=".csv")
            os.close(handle)
            self._files[name] = path, os.getpid()
        path, _ = self._files[name]
        if len(table):
            table.to_csv(path)
        return path

    def remove(self) -> None:
        for path, pid in self._files.values():
            if pid == os.getpid():
                try:
                    os.unlink(path)
                except OSError:
                    pass


def _session(*, method: Optional[str], **settings: Any) -> _native.Session:
    if method not in _METHODS:
        raise ValueError(f"cannot find context for {method!r}; use None, 'fork', 'spawn' or 'forkserver'")
    return _native.Session(method=method, sidecar=None if method is None else _sidecar(), **settings)


def _set_error(session: _native.Session, error: Optional[BaseException]) -> None:
    """Mark the run as failed by an exception. A closed generator and `sys.exit()` are no failures."""
    if error is None or isinstance(error, GeneratorExit):
        return
    if isinstance(error, SystemExit) and error.code in (None, 0):
        return
    try:
        message = str(error)
    except Exception:  # `__str__` is code of the user
        message = ""
    session.set_error(f"{type(error).__name__}: {message}" if message else type(error).__name__)


def _finish(session: _native.Session, files: _CsvFiles) -> None:
    """End a session whose tracker is garbage collected, or whose interpreter exits."""
    # Set by an unhandled exception, after which a program exits. Interactive sessions go on; they have a prompt.
    if session.running and not hasattr(sys, "ps1"):
        _set_error(session, getattr(sys, "last_value", None))
    session.remove_files()
    files.remove()


def _tags(tags: Optional[Mapping[str, Any]]) -> dict[str, str]:
    return {str(key): str(value) for key, value in (tags or {}).items()}


def _paths(paths: Optional[_Paths]) -> list[str]:
    """Return one path or several paths as a list."""
    if paths is None:
        return []
    return [os.fsdecode(path) for path in ([paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths)]


def _address(store: Optional[_Path]) -> Optional[str]:
    """Return the address of a store as text."""
    return None if store is None else os.fsdecode(store)


def _sidecar() -> str:
    """Return the path of the command installed by this package's wheel, else its name, to be found on PATH."""
    try:
        from importlib import metadata

        for file in metadata.files("resource-tracker") or ():
            if file.name in ("resource-tracker", "resource-tracker.exe"):
                path = os.path.realpath(str(file.locate()))
                if os.access(path, os.X_OK):
                    return path
    except Exception:  # the wheel is not installed, or no file can be opened: the core warns and samples in a thread
        pass
    return "resource-tracker"


def _log(level: str, message: str, *arguments: Any) -> None:
    try:
        # Imported on demand: the import takes longer than starting a tracker.
        import logging
    except Exception:  # a host process without free file descriptors must not fail here
        return

    logger = logging.getLogger("resource_tracker")
    if not logger.handlers:
        # Without a handler Python prints warnings to stderr.
        logger.addHandler(logging.NullHandler())
    getattr(logger, level)(message, *arguments)
