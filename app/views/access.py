"""Who may read which game's table and who may send events: matrix, why, acts, requests, drift, ends, producers."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from app import formatting
from app.access import drift, explain, forms, matrix, producers, queries
from app.access.queries import AccessState, ResolvedCatalog
from app.components import confirm, header, links
from app.look import parts
from app.state import services
from app.state.services import Environment
from pipeline.health.headlines.pages import OF_ACCESS

_VIEW: Final = "access_view"
_VIEWS: Final[Mapping[str, str]] = {
    "change": "Grant or revoke…",
    "requests": "Requests",
    "drift": "Drift",
    "ending": "Ending soon",
    "producers": "Producers",
}
_NO_VIEW: Final = "why"  # the matrix and why alone
_NAMES: Final = matrix.Names(explain.GAME, explain.WHO)
_TALL, _LOW = 560, 300  # px of the matrix: alone, and above a view
_LATE_ROUNDS: Final = 3  # of the controller, after which the snapshot is old
_MAX_NOTES: Final = 5
_WHERE: Final[Mapping[str, str]] = {
    "embedded": "Start `turnout catalog serve` and `turnout controller run`.",
    "unity": "Check that the controller runs with UNITY_CATALOG_URL and UNITY_CATALOG_TOKEN set.",
    "databricks": "Check that the controller runs with DATABRICKS_HOST and DATABRICKS_TOKEN set.",
}


def _page() -> None:
    header.keep_drawing(_live)
    services.warm_up()


def _live(environment: Environment) -> None:
    access = header.draw(environment, queries.read_access, "access", ranged=False)
    if access is None:
        return
    _draw_headline(environment, access)
    _draw_state(environment, access)
    linked = {"view": _VIEW, **matrix.LINKED, **explain.LINKED}
    unknown = {
        "view": links.take("view", _VIEW, {*_VIEWS, _NO_VIEW}, default=None),
        **matrix.take_filters(),
        "why_game": links.take("why_game", explain.GAME, _games(access)),
        "why_who": links.take("why_who", explain.WHO, access.everybody),
    }
    if st.session_state.get(_VIEW) == _NO_VIEW:
        st.session_state[_VIEW] = None
    view = st.session_state.get(_VIEW)
    if view == "change":
        linked |= forms.LINKED
        unknown["do"] = links.take("do", forms.DO, forms.DOES, default="give")
        unknown["of_games"] = links.take("of_games", forms.GAMES, access.names, many=True)
        unknown["to"] = links.take("to", forms.WHO, access.everybody, many=True)
    links.draw_unknown(unknown, linked)
    if access.known is not None:
        _draw_matrix(environment, access, access.known, None if view == "change" else view)
    st.segmented_control(
        "View",
        list(_VIEWS),
        key=_VIEW,
        format_func=_VIEWS.__getitem__,
        label_visibility="collapsed",
        on_change=_carry,
        args=(access.names,),
    )
    _draw_view(environment, access, view)
    links.keep(linked)


def _draw_matrix(environment: Environment, access: AccessState, known: ResolvedCatalog, view: str | None) -> None:
    """Draw drift first, then the matrix with why beside it."""
    found = drift.findings(environment, known)
    if view != "drift":
        drift.draw_first(found, known, _review_drift)
    filters = matrix.draw_filters()
    left, right = st.columns([2.6, 1], gap="small")
    with left:
        marked = matrix.marks(access.waiting, () if found is None else found.findings)
        matrix.draw(access, known, filters, marked, _TALL if view is None else _LOW, _NAMES)
    with (
        right,
        st.container(border=True, key="card_why", gap="xsmall", height="content" if view is None else _LOW + 40),
    ):
        explain.draw(environment, access, known, _change)


def _change(does: str, key: str, who: str) -> None:
    """Open the form of a change with the game and principal chosen under why."""
    links.choose("view", _VIEW, ("change",))
    links.choose("do", forms.DO, (does,), default="give")
    links.choose("of_games", forms.GAMES, (key,), many=True)
    links.choose("to", forms.WHO, (who,), many=True)


def _carry(names: Mapping[str, str]) -> None:
    """Fill a form that is opened empty with what is chosen under why."""
    key, who = st.session_state.get(explain.GAME), st.session_state.get(explain.WHO)
    held = [st.session_state.get(widget) for widget in (forms.GAMES, forms.WHO)]
    is_empty = not any(held) and not any(st.query_params.get(param) for param in ("of_games", "to"))
    if st.session_state.get(_VIEW) == "change" and is_empty and key in names and who is not None:
        _change("give", str(key), str(who))


def _review_drift() -> None:
    links.choose("view", _VIEW, ("drift",))


def _draw_view(environment: Environment, access: AccessState, view: str | None) -> None:
    if view == "change":
        forms.draw_change(environment, access, lambda: st.session_state.get(_VIEW) == "change", _let_go)
    elif view == "requests":
        forms.draw_requests(environment, access)
    elif view == "ending":
        drift.draw_ending(access)
    elif view == "producers":
        producers.draw(environment)
    elif view == "drift" and access.known is None:
        st.info("The catalog was not read yet.")
    elif view == "drift" and access.known is not None:
        drift.draw(environment, access.known)


def _let_go() -> None:
    links.choose("view", _VIEW, ())


def _games(access: AccessState) -> set[str]:
    return {*access.names, *(() if access.known is None else access.known.observed.tables)}


def _draw_headline(environment: Environment, access: AccessState) -> None:
    if access.known is None:
        header.headline("The catalog was never read: access is unknown", tone="blind")
        return
    header.headline(
        matrix.sentence(access, access.known),
        trouble=access.problem is not None
        or bool(access.known.observed.notes)
        or _is_late(environment, access.known, access),
        causes=OF_ACCESS,
    )


def _is_late(environment: Environment, known: ResolvedCatalog, access: AccessState) -> bool:
    return access.read_at - known.observed.read_at > _LATE_ROUNDS * environment.settings.access.refresh_seconds


def _draw_state(environment: Environment, access: AccessState) -> None:
    """Draw how old the snapshot is, what is wrong with it, what is on its way and what waits."""
    kind = environment.settings.access.catalog
    if access.problem is not None:
        kept = "" if access.known is None else " The page shows the last reading."
        st.warning(
            formatting.escaped(f"The newest read of the catalog failed: {access.problem}{kept}"),
            icon=":material/cloud_off:",
        )
    for note in () if access.known is None else access.known.observed.notes[:_MAX_NOTES]:
        st.warning(formatting.escaped(note), icon=":material/warning:")
    if access.known is None:
        st.info(f"{_WHERE[kind]} Other pages are not affected.", icon=":material/cloud_off:")
    elif _is_late(environment, access.known, access):
        st.warning(f"The snapshot of the catalog is old. {_WHERE[kind]}", icon=":material/history_toggle_off:")
    if access.no_controller is not None:
        waits = "the catalog is not read, operations wait, and grants do not expire"
        confirm.draw_absence(access.no_controller, waits)
    with st.container(gap=None):
        st.html(parts.note(formatting.shown(_state_line(environment, access))))
        if kind == "embedded":
            st.caption(
                "On a laptop the file system is the real boundary: access to the folder gives access to the tables, "
                f"whatever the catalog grants. Folder: {formatting.escaped(str(environment.paths.root))}"
            )


def _state_line(environment: Environment, access: AccessState) -> str:
    parts = []
    if access.known is not None:
        at = access.known.observed.read_at
        every = formatting.age(environment.settings.access.refresh_seconds)
        parts.append(
            f"Catalog read {formatting.age(access.read_at - at)} ago, at {formatting.clock(at)}; every {every}"
        )
    if access.on_the_way:
        number = len(access.on_the_way)
        parts.append(f"{number} change{'' if number == 1 else 's'} in progress: cells change when the catalog shows it")
    if access.waiting:
        parts.append(f"{len(access.waiting)} request{'' if len(access.waiting) == 1 else 's'} to decide")
    if access.ending:
        parts.append(f"{len(access.ending)} ending within 14 days")
    return " · ".join(parts) or "No data yet."


_page()
