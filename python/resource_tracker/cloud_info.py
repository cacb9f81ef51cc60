"""Cloud vendor, instance type and region of this machine."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["get_cloud_info"]


def get_cloud_info() -> dict[str, Any]:
    """Return vendor, instance type and region ("unknown" where not known), and the discovery time in seconds.

    The first call waits one second at most. The result is cached for the life of the process.

    >>> sorted(get_cloud_info())
    ['discovery_time', 'instance_type', 'region', 'vendor']
    """
    return _native.cloud_info()
