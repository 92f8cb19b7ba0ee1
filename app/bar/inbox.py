"""The inbox of the bar: how much waits for a person, and a link to where each is decided. `lines` is pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import streamlit as st

from app import formatting
from app.bar import queries
from app.bar.queries import Inbox
from app.components import links
from app.state.services import Environment
from pipeline.api.inbox import InboxItem, InboxKind
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited

_MOST: Final = 12  # lines; more are counted
_MOST_NAMED: Final = 1
_ICONS: Final[Mapping[InboxKind, str]] = {
    "operation": ":material/person_alert:",
    "access": ":material/key:",
    "registration": ":material/schema:",
    "reopening": ":material/menu_book:",
    "proposal": ":material/playlist_add:",
}


@dataclass(frozen=True, slots=True)
class InboxLine:
    """One line: what waits, and the page where a person decides it."""

    text: str
    icon: str
    page: str
    query: Mapping[str, str]


def draw(environment: Environment) -> None:
    """Draw the count and, in a menu of it, what waits."""
    try:
        seen = queries.read_inbox(environment)
    except Refused as refused:
        with st.popover("Inbox ?", type="tertiary", icon=":material/inbox:", key="inbox"):
            st.text(f"Not known: {formatting.shown(str(refused))}")
        return
    with st.popover(label(seen), type="tertiary", icon=":material/inbox:", key="inbox"):
        if not seen.items:
            st.text("Nothing waits for a person.")
        for each in lines(seen):
            st.page_link(
                f"views/{each.page}.py", label=formatting.escaped(each.text), icon=each.icon, query_params=each.query
            )
        if len(seen.items) > _MOST:
            st.text(f"{formatting.count(len(seen.items) - _MOST)} more; their pages list all.")


def label(seen: Inbox) -> str:
    """Return what the button says; a count stands out."""
    return f"Inbox :orange-badge[{formatting.count(len(seen.items))}]" if seen.items else "Inbox"


def lines(seen: Inbox) -> list[InboxLine]:
    """Return a line for each of the first items, with its requester and how long it has waited."""
    return [
        InboxLine(
            f"{_what(each)} · {formatting.shown(each.by, 28)}, {formatting.age(max(0.0, seen.read_at - each.since))}",
            _ICONS[each.kind],
            *_place(each),
        )
        for each in seen.items[:_MOST]
    ]


def _what(item: InboxItem) -> str:
    """Say what waits: `Move of Chess needs a person`, `Grant ann`."""
    named = join_limited(item.names, _MOST_NAMED, lambda name: formatting.shown(name, 36))
    return f"{formatting.shown(item.verb, 40).capitalize()} {named} {item.needs}".rstrip()


def _place(item: InboxItem) -> tuple[str, dict[str, str]]:
    match item.kind:
        case "operation":
            return "operations", {"operation": links.short(item.item_id)}
        case "access":
            return "access", {"view": "requests"}
        case "registration":
            return "schemas", {}
        case "reopening":
            return "books", {}
        case "proposal":
            return "games", {"name": item.item_id}
