"""Writes docs/python-api.md from the installed package: signatures and the first paragraph of each docstring."""

from __future__ import annotations

import importlib
import inspect
import sys

MODULES = {
    "resource_tracker": "Trackers, and facts about the machine.",
    "resource_tracker.fleet": "The runs of many machines.",
    "resource_tracker.tiny_data_frame": "Data frames without dependencies.",
    "resource_tracker.tracker_procfs": "Single readings of a process or the machine, from /proc on Linux.",
    "resource_tracker.tracker_psutil": "The same readings on any operating system.",
    "resource_tracker.server_info": "Size and limits of the machine.",
    "resource_tracker.cloud_info": "Cloud vendor, instance type and region.",
    "resource_tracker.keeper": "Servers and prices, by the Keeper (a public service of Spare Cores) or the built-in catalogue.",
    "resource_tracker.report": "The HTML report.",
    "resource_tracker.nvidia": "Usage of GPUs.",
    "resource_tracker.helpers": "Functions of the original package.",
    "resource_tracker.column_maps": "Names and unit factors of columns.",
    "resource_tracker.dummy_workloads": "CPU load for examples and tests.",
}


def first_paragraph(of: object) -> str:
    text = (inspect.getdoc(of) or "").split("\n\n")[0].replace("\n", " ").strip()
    return text if not text.startswith(">>>") else ""


def parameter(of: inspect.Parameter) -> str:
    prefix = {of.VAR_POSITIONAL: "*", of.VAR_KEYWORD: "**"}.get(of.kind, "")
    annotation = "" if of.annotation is of.empty else f": {of.annotation}"
    default = "" if of.default is of.empty else repr(of.default)
    # A long default says less than its name; the guide shows it.
    default = "…" if len(default) > 40 or " at 0x" in default else default
    return f"{prefix}{of.name}{annotation}" + (f" = {default}" if default else "")


def signature(name: str, of: object) -> str:
    try:
        found = inspect.signature(of)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return f"{name}(…)"
    parameters = [parameter(one) for one in found.parameters.values() if one.name != "self"]
    gives = found.return_annotation
    gives = "" if gives in (found.empty, None, "None") else f" -> {gives}"
    return f"{name}({', '.join(parameters)}){gives}".replace("|", "\\|")


def members(of: type) -> list[str]:
    lines = []
    for name, static in sorted(vars(of).items()):
        if name.startswith("_"):
            continue
        if isinstance(static, property):
            lines.append(f"| `{name}` | {first_paragraph(static)} |")
        elif callable(getattr(of, name)):
            lines.append(f"| `{signature(name, getattr(of, name))}` | {first_paragraph(getattr(of, name))} |")
    return [line.replace("\u00a0", " ") for line in lines]


def page() -> str:
    lines = ["# Python reference", "", "Generated from the installed package (`make generate-docs`). Types are in its stubs.", ""]
    for module_name, title in MODULES.items():
        module = importlib.import_module(module_name)
        names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        lines += [f"## `{module_name}`", "", title, ""]
        for name in sorted(names):
            thing = getattr(module, name)
            if name.startswith("__") or inspect.ismodule(thing):
                continue
            if inspect.isclass(thing) and thing.__module__.startswith("resource_tracker"):
                lines += [f"### `{signature(name, thing)}`", "", first_paragraph(thing), ""]
                rows = members(thing)
                lines += ["| member | meaning |", "|---|---|", *rows, ""] if rows else []
            elif inspect.isroutine(thing) and str(getattr(thing, "__module__", "")).startswith("resource_tracker"):
                lines += [f"### `{signature(name, thing)}`", "", first_paragraph(thing), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(page())
