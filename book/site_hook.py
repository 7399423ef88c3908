"""mkdocs hook: gives the runner's blocks a language and a title, so that the site colours them."""

from __future__ import annotations

import re
from typing import Any

_LANGUAGE = {"py": "python", "c": "c", "h": "c", "md": "markdown"}


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of each page."""
    return re.sub(
        r"^(`{3,})(output|measured|source|script)\b *(.*)$", _retitle, markdown, flags=re.M
    )


def _retitle(match: re.Match[str]) -> str:
    fence, kind, where = match.groups()
    if kind in ("output", "measured"):
        return f'{fence}text title="{kind}"'
    suffix = where.partition("::")[0].rpartition(".")[2]
    return f'{fence}{_LANGUAGE.get(suffix, "text")} title="{where}"'
