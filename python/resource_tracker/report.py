"""The report: one self-contained HTML page."""

from __future__ import annotations

import os

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

__all__ = ["Report", "round_memory"]


def round_memory(mb: float) -> int:
    """Round memory in MiB up to 128, 256, 512, 1024, 2048, then to whole GiB.

    >>> round_memory(mb=530)
    1024
    >>> round_memory(mb=2500)
    3072
    """
    return _native.round_memory(mb)


class Report(str):
    """An HTML page as a string.

    >>> Report("<p>x</p>").upper()
    '<P>X</P>'
    """

    __slots__ = ()

    def save(self, filepath: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> Report:
        """Write the page to a file atomically."""
        _native.save_text(self, os.fsdecode(filepath))
        return self

    def browse(self) -> Report:
        """Open the page in the browser. Its temporary file stays, since the browser may read it later."""
        import tempfile
        import webbrowser

        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", prefix="resource-tracker-", encoding="utf-8", delete=False
        ) as file:
            file.write(self)
        webbrowser.open("file://" + file.name)
        return self

    def _repr_html_(self) -> str:
        # In a frame, so that the styles of page and notebook do not mix. Its scripts cannot reach the notebook.
        from html import escape

        return (
            f'<iframe srcdoc="{escape(self, quote=True)}" sandbox="allow-scripts" title="resource-tracker report"'
            ' width="100%" height="700" frameborder="0"></iframe>'
        )
