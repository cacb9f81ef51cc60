"""Help pages of R as one page of Markdown. R converts them to HTML, of which this module knows the few elements that occur."""

from __future__ import annotations

import html
import re
import subprocess
from pathlib import Path

# Headings that every help page has: labels of a paragraph, not headings of the page.
LABELS = {"Arguments", "Details", "Returns", "Value"}
# These need no label: the first paragraph, the list of methods that follow, and blocks that have a title.
DROPPED = {"Description", "Methods", "Public methods", "Usage", "Examples"}


def page(folder: Path) -> str:
    text = "# R reference\n\nGenerated from the package's help pages; `?ResourceTracker` in R shows the same.\n"
    # The class first, by which all else is reached.
    for help_page in sorted(folder.glob("*.Rd"), key=lambda path: (path.stem != "ResourceTracker", path.stem.lower())):
        program = f"tools::Rd2HTML('{help_page}', no_links = TRUE)"
        shown = subprocess.run(["Rscript", "-e", program], stdout=subprocess.PIPE, text=True, check=True).stdout
        text += f"\n## {help_page.stem}\n\n{markdown(shown)}"
    return text


def markdown(shown: str) -> str:
    """Return the body of a help page as Markdown.

    >>> markdown('<h2>Track</h2><h3>Description</h3><p>Runs <code>x</code>.\\n</p><h3>Usage</h3><pre><code>track(x)\\n</code></pre>')
    'Runs `x`.\\n\\n```r title="Usage"\\ntrack(x)\\n```\\n'
    """
    _, _, body = shown.partition("</h2>")
    body = re.sub(r"<h3>Author\(s\)</h3>.*", "", body, flags=re.DOTALL)
    # Methods of a class are listed before they are described.
    body = re.sub(r"<h4>Public methods</h4>\s*<ul>.*?</ul>", "", body, flags=re.DOTALL)
    body = re.sub(r"<t[dh][^>]*>(.*?)</td>\s*<td>(.*?)</td>", r"<dt>\1</dt><dd>\2</dd>", body, flags=re.DOTALL)
    parts: list[str] = []
    label = ""
    element = r"<(h[345]|pre|dt|dd|li|p)\b[^>]*>(.*?)</\1>"
    for name, content in re.findall(element, body, re.DOTALL):
        match name:
            case "h3" | "h4" | "h5":
                label = inline(content)
                if label in LABELS:
                    parts.append(f"**{label}**")
                elif label not in DROPPED:
                    parts.append("### " + label.removeprefix("Method "))
            case "pre":
                code = html.unescape(re.sub(r"<[^>]+>", "", content)).strip("\n")
                parts.append(f'```r title="{label}"\n{code}\n```')
            case "dt":
                parts.append(f"- {inline(content)}")
            case "dd":
                parts[-1] += f": {inline(content)}"
            case "li":
                parts.append(f"- {inline(content)}")
            case "p" if inline(content) not in parts[-1:]:
                parts.append(inline(content))
    text = "\n\n".join(parts) + "\n"
    # Items of one list.
    return re.sub(r"(?<=\n)(- [^\n]*)\n\n(?=- )", r"\1\n", text)


def inline(content: str) -> str:
    text = re.sub(r"<code[^>]*>(.*?)</code>", r"`\1`", content, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", "", text)).replace("\u2060", "")
    return " ".join(text.split())
