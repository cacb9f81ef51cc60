"""Version of the package."""

from __future__ import annotations

from . import _native

__all__ = ["__version__"]

__version__: str = _native.version()
