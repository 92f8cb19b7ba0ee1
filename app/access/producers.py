"""Producers of the gRPC edge on the Access page: who may send which games, and the acts on them.

`lines` and `about` are pure.
"""

from datetime import UTC, date, datetime, time
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm
from app.look import parts
from app.look.rows import TALL, table_height
from app.state import services
from app.state.previews import Preview, planned
from app.state.services import Environment, kept
from pipeline.api import edge_producers
from pipeline.api.edge_producers import EdgeProducer, ProducersOverview
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.acts import DirectAct

_PLACE: Final = "edge_producers"
_NAME, _BY, _CREDENTIAL, _ALL = "producer_name", "producer_by", "producer_credential", "producer_all"
_GAMES, _PREFIXES, _UNTIL, _RATE = "producer_games", "producer_prefixes", "producer_until", "producer_rate"
_REVOKED: Final = "producer_revoked"
_MOST_NAMED, _MOST_SHOWN = 5, 500
_MOST_RATE: Final = 10_000_000  # events a second, as a file of producers takes them
_SOON_SECONDS: Final = 14 * 86_400.0
_KINDS: Final = {"token": "Token", "certificate": "Client certificate"}
_HELP: Final = {
    "token": "The SHA-256 that `turnout edge producers token` prints. turnout never stores the token.",
    "certificate": "The name in the certificate: uri:spiffe://…, else dns:host, else cn:name.",
}
_COLUMNS: Final = {
    "State": st.column_config.TextColumn(width=130),
    "Producer": st.column_config.TextColumn(width=170),
    "Games": st.column_config.TextColumn(width=185, help="Exact names of which it may send events."),
    "Prefixes": st.column_config.TextColumn(width=140, help="It may send events of all names that begin so."),
    "Token": st.column_config.TextColumn(width=90, help="The first digits of the token's SHA-256."),
    "Certificate": st.column_config.TextColumn(width=215, help="The name in its client certificate."),
    "Expires": st.column_config.TextColumn(width=160, help="UTC"),
    "Events/s": st.column_config.TextColumn(width=85, help="The most that it may send."),
}

_preview_added: Final = planned(edge_producers.preview_added)
_preview_revoked: Final = planned(edge_producers.preview_revoked)


@kept(seconds=2, by_acts=True)
def read(environment: Environment) -> ProducersOverview:
    """Read the producers and the edges."""
    return edge_producers.read(services.opened(environment))


def draw(environment: Environment) -> None:
    """Draw the producers, and the forms to add and to revoke one."""
    try:
        seen = read(environment)
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
        return
    with st.container(border=True, key="card_producers", gap="small"):
        st.html(parts.section("Producers of the gRPC edge", about(seen)))
        listed = lines(seen)
        if listed:
            st.dataframe(
                pd.DataFrame(listed[:_MOST_SHOWN]),
                hide_index=True,
                row_height=TALL,
                height=table_height(min(len(listed), _MOST_SHOWN), TALL, 400),
                column_config=_COLUMNS,
                placeholder=formatting.UNKNOWN_VALUE,
                alt="Producers of the edge: their state, their games, and when they expire.",
                key="producers_table",
            )
        else:
            st.html(parts.note("No producer: every edge refuses every call."))
        if len(listed) > _MOST_SHOWN:
            st.caption(f"{_MOST_SHOWN} of {len(listed)} shown; `turnout edge producers list` prints all.")
        _draw_adding(environment)
        _draw_revoking(environment, seen)
    confirm.draw_confirmation(environment, _PLACE)


def about(seen: ProducersOverview) -> str:
    """Say who changed the producers last, and whether an edge follows."""
    known = seen.known
    changed = "none was ever applied"
    if known.number:
        changed = (
            f"changed by {formatting.shown(known.actor, 60)} {formatting.age(seen.read_at - known.applied_at)} ago"
        )
    if not seen.edges:
        return f"{changed} · no edge runs"
    newest = formatting.age(max(0.0, min(seen.edges.values())))
    return f"{changed} · {len(seen.edges)} edge{'' if len(seen.edges) == 1 else 's'}, last heard of {newest} ago"


def lines(seen: ProducersOverview) -> list[dict[str, str | None]]:
    """Return the producers as lines of a table: expired and expiring ones first, revoked ones last."""
    ordered = sorted(seen.known.producers, key=lambda each: (each.revoked, each.expires_at or float("inf"), each.name))
    return [
        {
            "State": _state(each, seen.read_at),
            "Producer": formatting.shown(each.name, 60),
            "Games": "all" if "" in each.prefixes else _some(each.games),
            "Prefixes": None if "" in each.prefixes else _some(each.prefixes),
            "Token": f"{each.token_sha256[:8]}…" if each.token_sha256 else None,
            "Certificate": formatting.exact(each.certificate, 120) if each.certificate else None,
            "Expires": formatting.moment(each.expires_at) if each.expires_at is not None else "never",
            "Events/s": "no limit" if each.events_per_second is None else formatting.count(each.events_per_second),
        }
        for each in ordered
    ]


def _state(each: EdgeProducer, now: float) -> str:
    if each.revoked:
        return "✗ revoked"
    if not each.is_valid(now):
        return "▲ expired"
    left = None if each.expires_at is None else each.expires_at - now
    return f"△ {formatting.age(left)} left" if left is not None and left < _SOON_SECONDS else "● may send"


def _some(texts: tuple[str, ...]) -> str | None:
    return join_limited(texts, _MOST_NAMED, lambda each: formatting.exact(each, 60)) if texts else None


def _draw_adding(environment: Environment) -> None:
    needs = services.missing_role(environment, DirectAct.CHANGE_PRODUCERS)
    with st.expander("Add a producer", icon=":material/add:", key="producers_add"):
        by = st.segmented_control(
            "It names itself by", list(_KINDS), key=_BY, default="token", format_func=_KINDS.__getitem__, required=True
        )
        with st.form("fields_producer", enter_to_submit=False, border=False):
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_input("Name", key=_NAME, max_chars=40, width=240)
                kind = str(by or "token")
                title = "SHA-256 of its token" if kind == "token" else "Name in its certificate"
                st.text_input(title, key=_CREDENTIAL, max_chars=2_048, help=_HELP[kind])
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.text_area("Games, one a line, exact", key=_GAMES, height=100)
                st.text_area("Prefixes of games, one a line", key=_PREFIXES, height=100)
            with st.container(horizontal=True, vertical_alignment="bottom"):
                st.checkbox("All games", key=_ALL)
                st.date_input("Until the end of (UTC; empty: no end)", None, key=_UNTIL, format="YYYY-MM-DD", width=260)
                st.number_input("Events a second (empty: no limit)", 1, _MOST_RATE, None, key=_RATE, width=240)
            st.form_submit_button(
                "Preview the producer",
                key="preview_producer",
                on_click=confirm.stage_preview,
                args=(_PLACE, partial(_added, environment)),
                disabled=needs is not None,
            )
        if needs is not None:
            st.caption(formatting.escaped(needs))


def _draw_revoking(environment: Environment, seen: ProducersOverview) -> None:
    names = sorted(each.name for each in seen.known.producers if not each.revoked)
    if not names:
        return
    needs = services.missing_role(environment, DirectAct.REVOKE_PRODUCER)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        st.selectbox(
            "Revoke", names, None, key=_REVOKED, format_func=lambda name: formatting.shown(name, 60),
            placeholder="a producer", width=320,
        )  # fmt: skip
        st.button(
            "Preview the revocation",
            key="preview_producer_revoked",
            on_click=confirm.stage_preview,
            args=(_PLACE, partial(_revoked, environment)),
            disabled=needs is not None,
            help=None if needs is None else formatting.escaped(needs),
        )


def _added(environment: Environment) -> Preview:
    """Plan what the form says.

    Raises:
        Refused: something is missing or cannot be.
    """
    state: Any = st.session_state
    until, credential = state.get(_UNTIL), str(state.get(_CREDENTIAL) or "").strip()
    end = None
    if isinstance(until, date):
        end = datetime.combine(until, time.max, UTC).replace(microsecond=0).timestamp() + 1
    is_token = state.get(_BY) != "certificate"
    producer = EdgeProducer(
        name=str(state.get(_NAME) or "").strip(),
        token_sha256=credential if is_token else "",
        certificate="" if is_token else credential,
        games=() if state.get(_ALL) else _written(_GAMES),
        prefixes=("",) if state.get(_ALL) else _written(_PREFIXES),
        expires_at=end,
        events_per_second=state.get(_RATE),
    )
    if not producer.name or not credential:
        raise Refused("Enter a name, and the SHA-256 of its token or the name in its certificate.")
    return _preview_added(environment, producer)


def _written(field: str) -> tuple[str, ...]:
    return tuple(line for line in str(st.session_state.get(field) or "").split("\n") if line.strip())


def _revoked(environment: Environment) -> Preview:
    """Plan to revoke the chosen producer.

    Raises:
        Refused: none is chosen, or it cannot be revoked.
    """
    name = st.session_state.get(_REVOKED)
    if not name:
        raise Refused("Choose a producer to revoke.")
    return _preview_revoked(environment, str(name))
