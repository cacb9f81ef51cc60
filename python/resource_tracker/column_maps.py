"""Names and unit factors of the columns, read from the native metric table."""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["BYTE_MAPPING", "HUMAN_NAMES_MAPPING", "REPORT_CSV_MAPPING", "SERVER_ALLOCATION_CHECKS"]

_METRICS = [metric for metric in _native.metrics() if metric["table"] != "extra_metrics"]

#: Human-readable name by column.
HUMAN_NAMES_MAPPING: dict[str, str] = {metric["column"]: metric["human_name"] for metric in _METRICS}

#: Bytes per unit of a column, for the columns that `bytes=True` converts.
BYTE_MAPPING: dict[str, int] = {
    metric["column"]: int(metric["byte_factor"]) for metric in _METRICS if metric["byte_factor"]
}

#: Thresholds of the machine's usage above the job's. Beyond them the machine counts as shared with other jobs.
SERVER_ALLOCATION_CHECKS: list[dict[str, Any]] = _native.allocation_checks()


def _human(*columns: str) -> list[str]:
    """Human-readable names of the combined table: `process_memory` is `Process memory usage`."""
    split = [column.split("_", 1) for column in columns]
    return [HUMAN_NAMES_MAPPING["timestamp"], *(f"{of.title()} {HUMAN_NAMES_MAPPING[name]}" for of, name in split)]


#: Human-readable columns of the combined table, by plot of the report.
REPORT_CSV_MAPPING: dict[str, list[str]] = {
    "cpu": _human("process_cpu_usage", "system_cpu_usage"),
    "mem": _human("process_memory", "system_memory_used"),
    "disk": _human("process_read_bytes", "system_disk_read_bytes", "process_write_bytes", "system_disk_write_bytes"),
    "disk_space": _human("system_disk_space_used_gb"),
    "net": _human("system_net_recv_bytes", "system_net_sent_bytes"),
    "gpu_usage": _human("process_gpu_usage", "system_gpu_usage"),
    "gpu_utilized": _human("process_gpu_utilized", "system_gpu_utilized"),
    "gpu_vram": _human("process_gpu_vram", "system_gpu_vram"),
}
