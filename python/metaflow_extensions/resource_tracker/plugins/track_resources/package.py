"""Ships the package `resource_tracker` with the flow, and imports it where a step runs."""

from __future__ import annotations

import os
import sys


def files():
    """Yield source path and package path of each file that a remote step needs, including the native module."""
    import resource_tracker

    folder = os.path.dirname(os.path.abspath(resource_tracker.__file__))
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(root, name)
            yield path, os.path.join("resource_tracker", os.path.relpath(path, folder))


def import_tracker():
    """Return `ResourceTracker`, from the code package or else from a package installed on this machine.

    If the shipped native module is for another platform, the `ImportError` names this platform.
    """
    import platform

    here = f"Python {platform.python_version()} on {sys.platform} {platform.machine()}"
    if sys.version_info < (3, 9):  # noqa: UP036 - code packages bypass pip's check of `requires-python`
        raise ImportError(f"resource_tracker needs Python 3.9 or later, this is {here}")
    try:
        from resource_tracker import ResourceTracker
    except ImportError as error:
        try:
            return _import_installed()
        except ImportError:
            raise ImportError(f"resource_tracker has no native module for {here} ({error})") from error
    return ResourceTracker


def _import_installed():
    """Import from outside the code package, which contains this file."""
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
