"""The first command of the README with its output, as the picture docs/images/terminal.svg."""

from __future__ import annotations

import html
from pathlib import Path

import blocks

FONT = "font-family='ui-monospace,SFMono-Regular,Menlo,Consolas,Liberation Mono,monospace'"


def picture(readme: Path) -> str:
    found = blocks.read(readme)
    command, output = next((one, two) for one, two in zip(found, found[1:]) if two.title == "Output")
    printed = [("", line, "#e6edf3") for line in output.body.rstrip().splitlines()]
    lines = [("$ ", command.body.rstrip(), "#9fd6ff"), *printed]
    width, height = 8.45 * max(len(prompt + line) for prompt, line, _ in lines) + 36, 20 * len(lines) + 58
    rows = "".join(
        f"<text x='18' y='{56 + 20 * number}' fill='{colour}' xml:space='preserve'>"
        f"<tspan fill='#7ee787'>{prompt}</tspan>{html.escape(line)}</text>"
        for number, (prompt, line, colour) in enumerate(lines)
    )
    dots = "".join(f"<circle cx='{20 + 18 * number}' cy='18' r='5' fill='#4b5663'/>" for number in range(3))
    window = f"<rect width='100%' height='100%' rx='8' fill='#0f1720'/>{dots}"
    return svg(width, height, f"{window}<g {FONT} font-size='14'>{rows}</g>")


def svg(width: float, height: float, body: str) -> str:
    head = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0f} {height:.0f}' width='{width:.0f}' height='{height:.0f}'>"
    return f"{head}{body}</svg>\n".replace("<text ", "\n<text ").replace("<path ", "\n<path ")
