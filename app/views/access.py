"""Who may read which game's table: the matrix, why, giving and taking, requests, drift, and what ends soon."""

from collections.abc import Mapping
from typing import Final

import streamlit as st

from app import formatting
from app.access import drift, explain, forms, matrix, queries
from app.access.queries import AccessState, ResolvedCatalog
from app.components import header, links
from app.look import parts
from app.state import services
from app.state.services import Environment

_VIEW: Final = "access_view"
_VIEWS: Final[Mapping[str, str]] = {
    "why": "Why",
    "change": "Grant and revoke",
    "requests": "Requests",
    "drift": "Drift",
    "ending": "Ending soon",
}
_LATE_ROUNDS: Final = 3  # of the controller, after which the snapshot is old
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
    linked = {"view": _VIEW, **matrix.LINKED}
    unknown = {"view": links.take("view", _VIEW, _VIEWS, default="why"), **matrix.take_filters()}
    view = str(st.session_state.get(_VIEW) or "why")
    if view == "why":
        linked |= explain.LINKED
        unknown["why_game"] = links.take("why_game", explain.GAME, _games(access))
        unknown["why_who"] = links.take("why_who", explain.WHO, access.everybody)
    if view == "change":
        linked |= forms.LINKED
        unknown["do"] = links.take("do", forms.DO, forms.DOES, default="give")
        unknown["of_games"] = links.take("of_games", forms.GAMES, access.names, many=True)
        unknown["to"] = links.take("to", forms.WHO, access.everybody, many=True)
    links.draw_unknown(unknown, linked)
    if access.known is not None and view != "drift":
        drift.draw_first(environment, access.known, _review_drift)
    if access.known is not None:
        filters = matrix.draw_filters()
        prefill = matrix.Prefill(explain.GAME, explain.WHO, _VIEW, "why")
        matrix.draw(access, access.known, filters, prefill)
    st.segmented_control(
        "View", list(_VIEWS), key=_VIEW, format_func=_VIEWS.__getitem__, required=True, label_visibility="collapsed"
    )
    _draw_view(environment, access, view)
    links.keep(linked)


def _review_drift() -> None:
    st.session_state[_VIEW] = "drift"


def _draw_view(environment: Environment, access: AccessState, view: str) -> None:
    if view == "change":
        forms.draw_change(environment, access)
    elif view == "requests":
        forms.draw_requests(environment, access)
    elif view == "ending":
        drift.draw_ending(access)
    elif access.known is None:
        st.info("The catalog was not read yet.")
    elif view == "drift":
        drift.draw(environment, access.known)
    else:
        explain.draw(environment, access, access.known)


def _games(access: AccessState) -> set[str]:
    return {*access.names, *(() if access.known is None else access.known.observed.tables)}


def _draw_headline(environment: Environment, access: AccessState) -> None:
    if access.known is None:
        header.headline("The catalog was never read: access is unknown", tone="blind")
        return
    header.headline(
        matrix.sentence(access, access.known),
        trouble=access.problem is not None or _is_late(environment, access.known, access),
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
    if access.known is None:
        st.info(f"{_WHERE[kind]} Other pages are not affected.", icon=":material/cloud_off:")
    elif _is_late(environment, access.known, access):
        st.warning(f"The snapshot of the catalog is old. {_WHERE[kind]}", icon=":material/history_toggle_off:")
    if not access.controller_runs:
        st.warning(
            "No controller runs: the catalog is not read, operations wait, and grants do not expire. "
            "Start `turnout controller run`.",
            icon=":material/hourglass_disabled:",
        )
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
