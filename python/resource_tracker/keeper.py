"""Servers and prices from the Keeper, or from the built-in catalogue if the Keeper does not answer."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["get_instance_price", "get_recommended_cloud_servers", "keeper_request"]


def keeper_request(path: str, timeout: float = 2, endpoint: Optional[str] = None) -> Any:
    """Return the Keeper's answer to a path such as "/servers?limit=1"; None if there is no answer in time.

    `endpoint` is the base URL of the service; by default `RESOURCE_TRACKER_KEEPER_URL`, else the public Keeper.
    """
    return _native.keeper_request(path, timeout, endpoint)


def get_recommended_cloud_servers(
    cpu: float,
    memory: float,
    gpu: Optional[float] = None,
    vram: Optional[float] = None,
    n: int = 10,
    **kwargs: Any,
) -> list[dict[str, Any]]:
    """Return the `n` cheapest servers with at least these CPUs, memory (MiB), GPUs and VRAM (MiB), cheapest first.

    Keywords are filters: vendor_id, region, country, continent, architecture, spot and others. Parameters of the
    Keeper are accepted too: vcpus_min, memory_min (GiB), gpu_min and gpu_memory_total (GiB) apply if they exceed the
    arguments.

    >>> servers = get_recommended_cloud_servers(cpu=2, memory=4096, n=3)
    >>> all(server["vcpus"] >= 2 for server in servers)
    True
    """
    return _native.recommended_servers(cpu, memory, gpu, vram, n, kwargs)


def get_instance_price(vendor_id: str, region_id: str, instance_type: str) -> Optional[float]:
    """Return the on-demand price in USD per hour: in the region, else in the vendor's cheapest region, else None.

    >>> get_instance_price("nobody", "nowhere", "nothing") is None
    True
    """
    return _native.instance_price(vendor_id, region_id, instance_type)
