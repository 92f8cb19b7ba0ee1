"""A runbook as one HTML page for people without the dashboard's token: it says nothing of any fleet. Pure."""

import html
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from app.runbooks.document import Runbook, RunbookBlock, RunbookSpan

_STYLE: Final = (
    "body{font:16px/1.5 'Source Sans',sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark;background:light-dark(#fff,#12181D);color:light-dark(#13181D,#E4E9ED)}"
    "code{background:light-dark(#F0F2F5,#1B2229);padding:.1em .3em;border-radius:3px;overflow-wrap:anywhere}"
    "a{color:light-dark(#0B63A5,#7CC2F0)}li{margin:.4rem 0}"
)


def page(runbook: Runbook, name: str) -> str:
    """Return the page; `name` is the runbook's in links."""
    title = html.escape(runbook.title)
    filled = f'<p><a href="/runbook?name={html.escape(name)}">Open it in the dashboard</a>: with names filled in.</p>'
    parts = "".join(f"<h2>{html.escape(each.title)}</h2>{body(each.blocks)}" for each in runbook.sections)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{title}</h1>{filled}{parts}</html>"
    )


def body(blocks: Iterable[RunbookBlock], *, linked: bool = True) -> str:
    """Return paragraphs and lists; on a page of the dashboard links are drawn beside them, not `linked` in them."""
    made = []
    for is_list, group in groupby(blocks, key=lambda each: each.number is not None):
        members, tag = list(group), "li" if is_list else "p"
        start = members[0].number
        inside = "".join(f"<{tag}>{''.join(_span(span, linked) for span in each.spans)}</{tag}>" for each in members)
        made.append(f'<ol start="{start}">{inside}</ol>' if is_list else inside)
    return "".join(made)


def _span(span: RunbookSpan, linked: bool) -> str:
    text = html.escape(span.text)
    if span.kind == "code":
        return f"<code>{text}</code>"
    return text if span.target is None or not linked else f'<a href="/runbooks/{span.target}">{text}</a>'
