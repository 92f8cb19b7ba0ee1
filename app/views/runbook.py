"""A runbook filled with the names of one incident: commands to copy, each with the page that does the same.

`?name=` is the runbook's, `incident`, `game`, `group` and others what it is about. It is drawn without the control
store, too: some runbooks are about that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import streamlit as st

from app import formatting
from app.alerts import listing
from app.components import header, links
from app.look import parts
from app.runbooks import page_links, shelf, static, subjects
from app.runbooks.document import Runbook, RunbookBlock, RunbookSpan, commands
from app.runbooks.filling import RunbookSubject, fill
from app.state import alerts, control_queries, judged, services
from app.state.alerts import Alerts, ReportedAlert
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.base.texts import short_moment
from pipeline.health.incidents.causes import Action
from pipeline.health.incidents.incidents import Incident

_BUTTON_WIDTH: Final = 190  # px
_LABELS: Final = {
    "game": "Game",
    "group": "Group",
    "edge": "Edge",
    "derived": "Derived stream",
    "registry": "Registry",
    "operation": "Operation",
}


def _live(environment: Environment) -> None:
    header.lines(environment, ranged=False)
    name = st.query_params.get("name", "")
    runbook = shelf.find(name)
    if runbook is None:
        _draw_index(name)
        return
    reported = alerts.alerts(environment)
    about = [each for each in _reported(reported) if each.runbook == name]
    _draw_sentence(runbook, reported, about)
    incident, known = _incident(environment), _known(environment)
    linked = {param: st.query_params.get(param, "") for param in subjects.PARAMS}
    offered = subjects.candidates(linked, incident, map(listing.subject, about), known)
    chosen = _draw_choice(subjects.words(runbook), offered, linked, known)
    game = chosen.get("game")
    subject = RunbookSubject(
        folder=str(environment.paths.root),
        game=game,
        game_name=None if game is None or known.games is None else known.games.get(game),
        group=chosen.get("group"),
        edge=chosen.get("edge"),
        derived=chosen.get("derived"),
        registry=chosen.get("registry"),
        operation=chosen.get("operation"),
    )
    left, right = st.columns([2.2, 1], gap="small")
    with right:
        _draw_actions(runbook, incident, subject)
    for section in runbook.sections:
        has_steps = any(block.number is not None for block in section.blocks)
        with left if has_steps else right, st.container(border=True, key=f"card_{section.title.lower()}", gap="xsmall"):
            st.html(parts.section(section.title))
            for place, block in enumerate(section.blocks):
                _draw_block(block, subject, f"{section.title.lower()}_{place}", has_commands=has_steps)


def _draw_index(name: str) -> None:
    """Draw links to all runbooks, for a link without a name or with an unknown name."""
    header.headline(
        "Runbooks", meta=f"there is none of the name {formatting.shown(name, 60)}" if name else "", tone="plain"
    )
    with st.container(border=True, key="card_index", gap=None):
        for each in sorted(shelf.texts()):
            found = shelf.find(each)
            if found is not None:
                st.page_link("views/runbook.py", label=found.title, query_params={"name": each})


def _reported(known: Alerts) -> list[ReportedAlert]:
    return [*(known.firing or ()), *(known.pending or ()), *(known.silenced or ()), *(known.explained or ())]


def _draw_sentence(runbook: Runbook, reported: Alerts, about: Sequence[ReportedAlert]) -> None:
    firing = [each for each in about if each.state == "firing"]
    now = reported.read_at
    if firing:
        since = min(each.since for each in firing)
        many = "" if len(firing) == 1 else f", {formatting.count(len(firing))} times"
        meta = f"fires since {short_moment(since, now)}, {formatting.age(now - since)}{many}"
    elif reported.firing is None:
        meta = f"whether it fires is not known: {listing.away(reported.why_unknown, reported.away_since, now)}"
    else:
        meta = " · ".join(dict.fromkeys(each.state for each in about)) or "does not fire now"
    header.headline(runbook.title, meta=meta, tone="bad" if firing else "plain")


def _incident(environment: Environment) -> Incident | None:
    wanted = st.query_params.get("incident", "")
    try:
        found = judged.incidents(environment) if wanted else ()
    except Refused:
        return None
    return next((each for each in found if each.incident_id == wanted), None)


def _known(environment: Environment) -> subjects.Known:
    """Return what is there; nothing of it where the control store does not answer."""
    try:
        rows = services.fleet(environment).rows
        stuck = [each for each in control_queries.journal(environment).operations if each.is_stuck]
    except Refused:
        return subjects.Known(None, {})
    return subjects.Known(
        {row.game_key: row.game for row in rows},
        {row.game_key: row.group for row in rows},
        [links.short(each.operation_id) for each in stuck],
    )


def _draw_choice(
    needed: Sequence[str], offered: Mapping[str, Sequence[str]], linked: Mapping[str, str], known: subjects.Known
) -> dict[str, str]:
    """Draw a choice for each parameter that has several values, or none; return the values, also of those with one."""
    chosen = {param: values[0] for param, values in offered.items() if values}
    if needed:
        with st.container(horizontal=True, key="row_subject", gap="small"):
            for param in needed:
                _draw_one_choice(param, offered[param] or _all(param, known), linked.get(param, ""), chosen, known)
    return chosen


def _draw_one_choice(
    param: str, values: Sequence[str], linked: str, chosen: dict[str, str], known: subjects.Known
) -> None:
    if not values:
        st.html(parts.note(f"{_LABELS[param]}: none is known"), width="content")
        return
    label = _label_of(param, known)
    picked = st.selectbox(
        _LABELS[param],
        values,
        index=0 if param in chosen else None,
        format_func=label,
        placeholder="choose",
        key=f"subject_{param}",
        width=320,
    )
    if linked and linked not in values:
        st.html(parts.note(f"The link names {formatting.shown(linked, 60)}, which is not here."), width="content")
    if picked is None:
        chosen.pop(param, None)
    else:
        chosen[param] = picked


def _all(param: str, known: subjects.Known) -> list[str]:
    """Return everything of a kind, where nothing of it belongs to the incident."""
    groups = {each for each in known.groups.values() if each is not None}
    return {"game": sorted(known.games or ()), "group": sorted(groups)}.get(param, [])


def _label_of(param: str, known: subjects.Known) -> Callable[[str], str]:
    names = known.games or {}
    if param == "game":
        return lambda key: formatting.game_text(key, names[key]) if key in names else formatting.shown(key, 80)
    return lambda value: formatting.shown(value, 80)


def _draw_actions(runbook: Runbook, incident: Incident | None, subject: RunbookSubject) -> None:
    """Draw what the incident's next action is, and the page that shows the problem."""
    page = _page(runbook, subject)
    with st.container(border=True, key="card_actions", gap="xsmall"):
        st.html(parts.section("On the pages", "nothing is done before you confirm it there"))
        if incident is not None and incident.finding.action is not None and incident.ended_at is None:
            st.text(formatting.shown(incident.finding.title, 160))
            _draw_button(incident.finding.action, "act", is_primary=True)
        if page is not None:
            _draw_button(page, "page")
        st.page_link("views/alerts.py", label="All alerts")


def _page(runbook: Runbook, subject: RunbookSubject) -> Action | None:
    """Return the page that the runbook names, with this incident's choice; None where that is not known."""
    place = urlsplit(runbook.page)
    filled = {name: fill(value, subject) for name, value in parse_qsl(place.query)}
    if any(each.missing for each in filled.values()):
        return None
    page = place.path.strip("/") or "fleet"
    return Action(f"Open {page}", page, {name: each.text for name, each in filled.items()})


def _draw_button(action: Action, key: str, *, is_primary: bool = False) -> None:
    st.button(
        formatting.escaped(action.label),
        key=f"do_{key}",
        type="primary" if is_primary else "secondary",
        on_click=partial(links.open_page, action.page, action.query),
        width="stretch",
    )


def _draw_block(block: RunbookBlock, subject: RunbookSubject, key: str, *, has_commands: bool) -> None:
    st.html(f'<div class="t-runbook">{static.body([_filled(block, subject)], linked=False)}</div>')
    for place, command in enumerate(dict.fromkeys(commands(block.spans)) if has_commands else ()):
        filled, action = fill(command, subject), page_links.page_of(command, subject)
        with st.container(horizontal=True, vertical_alignment="center", key=f"row_{key}_{place}", gap="small"):
            with st.container(width="stretch", gap=None):
                if filled.missing:
                    st.html(parts.note(f"Choose {' and '.join(filled.missing)} above for this command."))
                else:
                    st.code(filled.text, language=None, wrap_lines=True)
                if filled.choices:
                    st.html(parts.note(f"Replace {', '.join(filled.choices)}."))
            with st.container(width=_BUTTON_WIDTH):
                if action is not None:
                    _draw_button(action, f"{key}_{place}")
    for span in block.spans:
        if span.target is not None and shelf.find(span.target) is not None:
            links.draw_runbook(span.target, _query(subject), label=f"Runbook {span.text}")


def _query(subject: RunbookSubject) -> dict[str, str]:
    known = {param: getattr(subject, param) for param in subjects.PARAMS}
    return {param: value for param, value in known.items() if value is not None}


def _filled(block: RunbookBlock, subject: RunbookSubject) -> RunbookBlock:
    """Return a block with the incident's names in its code."""

    def filled(span: RunbookSpan) -> RunbookSpan:
        is_code = span.kind == "code"
        return replace(span, text=fill(span.text, subject, names_environment=False).text) if is_code else span

    return replace(block, spans=tuple(map(filled, block.spans)))


def _draw_unfilled(why: str) -> None:
    """Draw a runbook without an environment to fill it from: it may be about just that."""
    st.warning(formatting.escaped(f"{why} The runbook has no names filled in."), icon=":material/database_off:")
    runbook = shelf.find(st.query_params.get("name", ""))
    if runbook is None:
        return
    st.html(parts.sentence(runbook.title, "", "plain"))
    for section in runbook.sections:
        st.html(
            f'{parts.section(section.title)}<div class="t-runbook">{static.body(section.blocks, linked=False)}</div>'
        )


try:
    services.open_environment()
except Refused as refused:
    _draw_unfilled(str(refused))
else:
    header.keep_drawing(_live)
