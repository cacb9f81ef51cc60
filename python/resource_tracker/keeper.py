"""Servers and prices: of the Keeper when it answers, else of the catalogue that is built in."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Optional

__all__ = ["get_instance_price", "get_recommended_cloud_servers", "keeper_request"]


def keeper_request(path: str, timeout: float = 2) -> Any:
    """The Keeper's answer to a path such as "/servers?limit=1", or None when there is none in time."""
    return _native.keeper_request(path, timeout)


def get_recommended_cloud_servers(
    cpu: float,
    memory: float,
    gpu: Optional[float] = None,
    vram: Optional[float] = None,
    n: int = 10,
    **kwargs: Any,
) -> list[dict[str, Any]]:
    """The `n` cheapest servers with so many CPUs and so much memory (MB), GPUs and VRAM (MB).

    Keywords are filters: vendor_id, region, country, continent, architecture, spot and others. Names of the Keeper's
    own parameters will do: vcpus_min, memory_min (GiB), gpu_min and gpu_memory_total (GiB) count where they are more
    than the sizes. The answer is ordered by price.

    >>> servers = get_recommended_cloud_servers(cpu=2, memory=4096, n=3)
    >>> all(server["vcpus"] >= 2 for server in servers)
    True
    """
    return _native.recommended_servers(cpu, memory, gpu, vram, n, kwargs)


def get_instance_price(vendor_id: str, region_id: str, instance_type: str) -> Optional[float]:
    """USD an hour on demand: in that region, else in the vendor's cheapest other one, else None.

    >>> get_instance_price("nobody", "nowhere", "nothing") is None
    True
    """
    return _native.instance_price(vendor_id, region_id, instance_type)
