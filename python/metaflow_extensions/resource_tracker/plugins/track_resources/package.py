"""The package `resource_tracker`, on the machine where the flow is started and on the one where a step runs."""

from __future__ import annotations

import os
import sys


def files():
    """Path and place of each file that a step needs on another machine, the native module included."""
    import resource_tracker

    folder = os.path.dirname(os.path.abspath(resource_tracker.__file__))
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(root, name)
            yield path, os.path.join("resource_tracker", os.path.relpath(path, folder))


def import_tracker():
    """`ResourceTracker`; an `ImportError` in words where what came along is for another platform.

    A package that is installed on that machine does in its place.
    """
    import platform

    here = f"Python {platform.python_version()} on {sys.platform} {platform.machine()}"
    if sys.version_info < (3, 9):  # noqa: UP036 - Metaflow's code packages also run where pip has not asked
        raise ImportError(f"resource_tracker needs Python 3.9, this is {here}")
    try:
        from resource_tracker import ResourceTracker
    except ImportError as error:
        try:
            return _import_installed()
        except ImportError:
            raise ImportError(f"resource_tracker has no module for {here} ({error})") from error
    return ResourceTracker


def _import_installed():
    """The same from elsewhere than the code package, in which this very file lies."""
    code = os.path.realpath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 4))
    for name in [name for name in sys.modules if name.partition(".")[0] == "resource_tracker"]:
        del sys.modules[name]
    path = list(sys.path)
    sys.path[:] = [entry for entry in path if os.path.realpath(entry or os.curdir) != code]
    try:
        from resource_tracker import ResourceTracker
    finally:
        sys.path[:] = path
    return ResourceTracker
