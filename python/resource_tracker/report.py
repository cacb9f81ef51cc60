"""The report: one HTML page that needs no network."""

from __future__ import annotations

import os

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

__all__ = ["Report", "round_memory"]


def round_memory(mb: float) -> int:
    """Memory in MB, rounded up to 128, 256, 512, 1024, 2048, then to whole GB.

    >>> round_memory(mb=530)
    1024
    >>> round_memory(mb=2500)
    3072
    """
    return _native.round_memory(mb)


class Report(str):
    """A page of HTML that is also a plain string.

    >>> Report("<p>x</p>").upper()
    '<P>X</P>'
    """

    __slots__ = ()

    def save(self, filepath: Union[str, bytes, os.PathLike[str], os.PathLike[bytes]]) -> Report:
        """Writes the page to a file, whole or not at all."""
        _native.save_text(self, os.fsdecode(filepath))
        return self

    def browse(self) -> Report:
        """Shows the page in the browser, from a temporary file that stays for the browser to read."""
        import tempfile
        import webbrowser

        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", prefix="resource-tracker-", encoding="utf-8", delete=False
        ) as file:
            file.write(self)
        webbrowser.open("file://" + file.name)
        return self

    def _repr_html_(self) -> str:
        # A page within a page: framed, so that neither's styles reach the other.
        from html import escape

        return f'<iframe srcdoc="{escape(self, quote=True)}" width="100%" height="700" frameborder="0"></iframe>'
