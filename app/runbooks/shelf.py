"""The runbooks that came with this code, by the names that alerts link."""

from collections.abc import Mapping
from functools import cache

from app.runbooks.document import Runbook, parse
from pipeline.platforms.local.shared import documents


@cache
def texts() -> Mapping[str, str]:
    """Return each runbook's Markdown by its name."""
    return {page.stem: page.read_text("utf-8") for page in documents("runbooks").glob("*.md")}


@cache
def find(name: str) -> Runbook | None:
    """Return a runbook by its name; None where there is none."""
    text = texts().get(name)
    return None if text is None else parse(text)
