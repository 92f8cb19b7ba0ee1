"""Break it: the faults of the running demo, to learn turnout by them. No other environment has this page."""

from collections.abc import Callable, Collection

import streamlit as st

from app import formatting
from app.components import header
from app.look import parts
from app.look.tokens import Tone
from app.state import breaking, services
from app.state.services import Environment
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.demo.breaking.channel import Active, ChannelAnswer
from pipeline.demo.breaking.faults import FAULTS, Fault, TargetKind
from pipeline.health.facts.fleet import Fleet

_SAID = "break_it_said"
_PER_LINE = 2


def _live(environment: Environment) -> None:
    lines = header.lines(environment, ranged=False)
    try:
        answer, fleet = breaking.look(environment), services.fleet(environment)
        promised = breaking.promised(environment)
    except Refused as refused:
        header.headline("No demo to break", tone="blind")
        st.info(formatting.escaped(str(refused)), icon=":material/link_off:")
        return
    header.show(environment, lines, lambda _: answer, "break_it")
    sentence, meta, tone = _sentence(answer)
    header.headline(sentence, meta=meta, tone=tone)
    _draw_said()
    names = {row.game_key: row.game for row in fleet.rows}
    with st.container(key="active_faults", gap="xsmall"):
        for each in answer.active:
            _draw_active(environment, each, answer.read_at, names)
    lacking = services.missing_role(environment, DirectAct.BREAK_IT)
    targets = _targets(fleet, names, promised)
    faults = [*FAULTS.values()]
    for begin in range(0, len(faults), _PER_LINE):
        for fault, place in zip(faults[begin : begin + _PER_LINE], st.columns(_PER_LINE, gap="small"), strict=False):
            with place, st.container(border=True, height="stretch", key=f"card_fault_{fault.name}", gap="xsmall"):
                _draw_fault(environment, fault, targets, lacking)


def _sentence(answer: ChannelAnswer) -> tuple[str, str, Tone]:
    """Return the page's sentence, what stands beside it, and its tone."""
    if not answer.active:
        return "Nothing is broken", "choose a fault; then find, explain and mend it by the other pages", "plain"
    number = len(answer.active)
    return (
        f"{number} {'fault lasts' if number == 1 else 'faults last'}",
        "find, explain and mend by the other pages",
        "busy",
    )


def _draw_said() -> None:
    """Draw what the last click did, until the next one."""
    said, well = st.session_state.get(_SAID, ("", True))
    with st.container(key="said"):
        if said:
            (st.info if well else st.warning)(formatting.escaped(said))


def _draw_active(environment: Environment, active: Active, now: float, names: dict[str, str]) -> None:
    fault = FAULTS[active.fault]
    with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"inc_busy_{_key(active)}"):
        lasted, rest = formatting.duration(now - active.since), formatting.duration(active.until - now)
        times = f"for {lasted}, at most {rest} more"
        st.html(parts.incident("»", fault.title, formatting.shown(active.said), times, "busy"), width="stretch")
        with st.container(width=190):
            st.button(
                fault.undo or "End it",
                key=f"undo_{_key(active)}",
                on_click=_undo,
                args=(environment, active.fault, active.target),
                help=formatting.escaped(f"Ends it for {names.get(active.target, active.target) or 'the whole demo'}."),
            )


def _draw_fault(
    environment: Environment, fault: Fault, targets: dict[TargetKind, dict[str, str]], lacking: str | None
) -> None:
    st.html(parts.section(fault.title) + parts.note(fault.does))
    known = targets[fault.target]
    with st.container(horizontal=True, vertical_alignment="center", key=f"row_{fault.name}"):
        chosen: str | None = ""
        if fault.is_named:
            chosen = st.selectbox(
                "Game" if fault.is_of_a_game else "Driver",
                list(known),
                key=f"target_{fault.name}",
                format_func=lambda each: known.get(each, each),
                label_visibility="collapsed",
                width=300,
            )
        st.button(
            fault.title,
            key=f"break_{fault.name}",
            on_click=_begin,
            args=(environment, fault.name, f"target_{fault.name}" if fault.is_named else None),
            disabled=lacking is not None or chosen is None,
            help=lacking if chosen is not None else "The demo has none yet: wait about a minute after its start.",
        )
    with st.expander("What to see where, and how it is mended", key=f"signs_{fault.name}"):
        for sign in fault.signs:
            is_game = fault.is_of_a_game and sign.where in {"Game", "Schemas"}
            st.page_link(
                f"views/{sign.where.lower()}.py",
                label=formatting.escaped(f"{sign.where}, within {sign.seconds} s: {sign.what}"),
                query_params={"game": chosen} if is_game and chosen else None,
            )
        st.html(parts.note(fault.mend))


def _targets(fleet: Fleet, names: dict[str, str], promised: Collection[str]) -> dict[TargetKind, dict[str, str]]:
    """Return what each kind of fault may choose: target → text; `promised` has the games with a contract."""
    games = {key: formatting.game_text(key, name) for key, name in sorted(names.items(), key=lambda each: each[1])}
    groups = {name: f"group {formatting.shown(name)}" for name in fleet.groups}
    kept = {key: text for key, text in games.items() if key in promised}
    drivers = {**groups, "ingest": "ingest"}
    return {"group": groups, "driver": drivers, "game": games, "promised": kept, "source": {}, "store": {}}


def _begin(environment: Environment, fault: str, chooser: str | None) -> None:
    target = "" if chooser is None else st.session_state.get(chooser) or ""
    _act(lambda: breaking.begin(environment, fault, target))


def _undo(environment: Environment, fault: str, target: str) -> None:
    _act(lambda: breaking.undo(environment, fault, target))


def _act(act: Callable[[], str]) -> None:
    try:
        st.session_state[_SAID] = act(), True
    except Refused as refused:
        st.session_state[_SAID] = str(refused), False


def _key(active: Active) -> str:
    return f"{active.fault}_{active.target or 'source'}"


header.keep_drawing(_live)
