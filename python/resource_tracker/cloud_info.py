"""Which cloud this machine is in."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["get_cloud_info"]


def get_cloud_info() -> dict[str, Any]:
    """Vendor, instance type and region, "unknown" where not known, and the seconds it took to find out.

    Waits for one second at the most, and finds out once a process.

    >>> sorted(get_cloud_info())
    ['discovery_time', 'instance_type', 'region', 'vendor']
    """
    return _native.cloud_info()
