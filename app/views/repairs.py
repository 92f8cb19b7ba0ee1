"""What failed, why, and what can be tried again: games that are parked, wait after a failure, or are in trouble."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm, header, links, pills, repair_figures
from app.look import parts
from app.look.rows import TALL, table_height
from app.look.sentences import of_headline
from app.state import control_queries, judged, previews, services
from app.state.control_queries import ControlState
from app.state.readings import reading
from app.state.series import series
from app.state.services import Environment
from pipeline.api.acts import moment
from pipeline.api.operations import OperationKind
from pipeline.api.rows import REASONS
from pipeline.api.steering import StreamControl
from pipeline.base.errors import Refused
from pipeline.control import capabilities
from pipeline.control.operations import registry, repairs
from pipeline.control.operations.facts import GameFacts
from pipeline.health.facts.fleet import GameRow
from pipeline.health.headlines import pages as headlines
from pipeline.health.headlines.standings import Situation

_PLACE = "repairs_repair"
_GAMES, _KIND, _OF = "repair", "repair_kind", "replay_of"
_REFUSED_FOR, _SINCE, _UNTIL = "replay_refused_for", "replay_since", "replay_until"
_LINKED: Final[Mapping[str, str]] = {
    "repair": _KIND,
    "games": _GAMES,
    "rows": _OF,
    "refused_for": _REFUSED_FOR,
    "seen_since": _SINCE,
    "seen_until": _UNTIL,
}  # the URL's parameters, and whose they are; a text of its own would be drawn on the page

_WHOSE: Final[Mapping[str, str]] = {"chosen": "of these games", "all": "of all games that have such rows"}
_REPAIRS: Final[Mapping[str, str]] = {
    OperationKind.RETRY: "Retry: a stream that was parked or waits runs again at once, with all of its attempts.",
    OperationKind.REPLAY: "Replay: rows in quarantine that decode today go into their table; the others stay.",
    OperationKind.DEDUPE: (
        "Dedupe: second copies of rows are removed from a table in one commit; one copy of each row stays."
    ),
    OperationKind.REBUILD: "Rebuild: write a new table from bronze and replace the old one in one commit.",
}
_CLASSES = {
    "expected": "another owner was first",
    "transient": "storage, a store or disk",
    "poison": "its rows, schema or table",
    "fatal": "it killed a worker",
}
_STATUSES = {formatting.status_text(status): style.tone for status, style in formatting.STATUS_STYLES.items()}
_COLUMNS = {
    "game": st.column_config.TextColumn("Game", width=145),
    "page": links.game_column("Key (opens its page)", "repairs", 165),
    "group": st.column_config.TextColumn("Group", width=55),
    "how": st.column_config.TextColumn("Stopped", width=130),
    "possible": st.column_config.TextColumn("Possible now", width=140, help="Rows in quarantine are not counted here."),
    "class": st.column_config.TextColumn("Class of cause", width=140),
    "evidence": st.column_config.TextColumn("Evidence", width=205),
    "failures": st.column_config.TextColumn("Failures", width=65, help="In a row."),
    "last": st.column_config.TextColumn("Last failed", width=80),
}
_ORDER: Final = ("status", "game", "page", "evidence", "how", "failures", "last", "possible", "class", "group")
_HOUR: Final = 3600  # seconds, of the rows that were refused
_NOTHING = StreamControl()


def _live(environment: Environment) -> None:
    steering = header.draw(environment, control_queries.steering, "steering", ranged=False)
    if steering is None:
        return
    known = judged.of_fleet(environment, steering.fleet)
    stopped = {row.game_key for row in steering.fleet.rows if _is_stopped(steering, row)}
    keys = headlines.to_repair(known, stopped)
    rows = [row for row in steering.fleet.rows if row.game_key in keys]
    streams = f"{formatting.count(len(steering.fleet.rows))} streams"
    header.draw_sentence(of_headline(headlines.of_repairs(known, stopped), known.now, streams))
    hour = reading("series", (environment.store, _HOUR), lambda: series(environment, _HOUR))
    with st.container(border=True, key="strip_repairs"):
        st.html(parts.figures(repair_figures.figures(steering, hour)))
    if not rows:
        st.info(
            "No stream is parked, waits after a failure, or is in trouble. Rows in quarantine are not counted here: "
            "a replay lands those that decode today."
        )
    else:
        _draw_table(environment, steering, known, rows)
    _draw_repair(environment, steering)


def _draw_table(environment: Environment, steering: ControlState, known: Situation, rows: list[GameRow]) -> None:
    facts: Mapping[str, GameFacts] = {}
    try:
        facts = control_queries.facts(environment, sorted(row.game_key for row in rows))
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/database_off:")
    st.dataframe(
        pd.DataFrame(_row(steering, known, row, facts.get(row.game_key)) for row in rows),
        hide_index=True,
        row_height=TALL,
        height=table_height(len(rows), TALL, 620),
        column_order=_ORDER,
        column_config={"status": pills.column("Status", _STATUSES, 105), **_COLUMNS},
        alt="Games that failed or are in trouble, worst first. The key links to the game's page.",
        key="repairs_table",
    )
    links.offer_games("repairs", {row.game_key: formatting.game_text(row.game_key, row.game) for row in rows})


def _is_stopped(steering: ControlState, row: GameRow) -> bool:
    decision = steering.decisions.get(row.game_key, _NOTHING)
    return decision.parked_at is not None or decision.failures > 0


def _row(steering: ControlState, known: Situation, row: GameRow, facts: GameFacts | None) -> dict[str, str | list[str]]:
    decision = steering.decisions.get(row.game_key, _NOTHING)
    now = steering.read_at
    reported_error = row.reported.last_error if row.reported is not None else None
    incident = known.incident_of.get(row.game_key)  # it may know of a failure before the store does
    found = None if incident is None else incident.finding.title
    evidence = decision.evidence or reported_error or row.verdict.reason or found
    return {
        "status": [formatting.status_text(row.verdict.status)],
        "game": formatting.shown(row.game, 80),
        "page": row.game_key,
        "group": formatting.shown(row.group, 40) if row.group is not None else formatting.UNKNOWN_VALUE,
        "how": _how(decision, now),
        "possible": _possible(facts),
        "class": _CLASSES.get(decision.failure_class or "", formatting.UNKNOWN_VALUE),
        "evidence": formatting.shown(evidence, 200) if evidence else formatting.UNKNOWN_VALUE,
        "failures": formatting.count(decision.failures) if decision.failures else formatting.UNKNOWN_VALUE,
        "last": f"{formatting.age(now - decision.failed_at)} ago"
        if decision.failed_at is not None
        else formatting.UNKNOWN_VALUE,
    }


def _how(decision: StreamControl, now: float) -> str:
    if decision.parked_at is not None:
        return f"parked {formatting.age(now - decision.parked_at)} ago" if decision.parked_at is not None else "parked"
    if decision.failures:
        return (
            f"next attempt in {formatting.age(decision.retry_at - now)}"
            if decision.retry_at > now
            else "tries at its next pass"
        )
    return formatting.UNKNOWN_VALUE


def _possible(facts: GameFacts | None) -> str:
    """Name what may be done for a game now, the gentlest first; its page has the reasons."""
    if facts is None:
        return formatting.UNKNOWN_VALUE
    if (busy := facts.busy or facts.group_busy) is not None:
        return f"✗ busy: {formatting.shown(busy, 40)}"
    names = [each.name for each in capabilities.repairs(facts) if each.possible]
    return f"✓ {', '.join(names)}" if names else "✗ nothing"


def _draw_repair(environment: Environment, steering: ControlState) -> None:
    """Draw the plan of a repair: games by their names, never by a place in the table."""
    names = {row.game_key: formatting.game_text(row.game_key, row.game) for row in steering.fleet.rows}
    with st.container(border=True, key="plan_repair", gap="small"):
        st.html(parts.section("Repair streams", "least disturbing first; a preview before anything is done"))
        _take_link(names)
        kind = st.segmented_control("Repair", list(_REPAIRS), key=_KIND, required=True, label_visibility="collapsed")
        st.caption(_REPAIRS[str(kind)])
        disabled_reason = services.missing_role(environment, str(kind))
        takes_rows = _takes_rows(kind)
        if takes_rows:
            _draw_choice()
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.multiselect(
                "Games",
                list(names),
                key=_GAMES,
                format_func=lambda key: names.get(key, key),
                placeholder="by name or key",
                select_all=False,
                disabled=takes_rows and st.session_state.get(_OF) == "all",
            )
            st.button(
                f"Preview the {kind}",
                key="preview_repair",
                type="primary",
                on_click=_offer,
                args=(environment,),
                disabled=disabled_reason is not None,
            )
        links.keep(_LINKED if takes_rows else {param: _LINKED[param] for param in ("repair", "games")})
        if disabled_reason is not None:
            st.caption(formatting.escaped(disabled_reason))
        confirm.draw_confirmation(environment, _PLACE)


def _take_link(names: Mapping[str, str]) -> None:
    """Choose what the link names, and report what is not here; what a replay takes is of no other repair."""
    unknown = {
        "repair": links.take("repair", _KIND, _REPAIRS, default=OperationKind.RETRY),
        "games": links.take("games", _GAMES, names, many=True),
    }
    if _takes_rows(st.session_state.get(_KIND)):
        unknown |= {
            "rows": links.take("rows", _OF, _WHOSE, default="chosen"),
            "refused_for": links.take("refused_for", _REFUSED_FOR, REASONS),
            "seen_since": links.take("seen_since", _SINCE),
            "seen_until": links.take("seen_until", _UNTIL),
        }
    links.draw_unknown(unknown, _LINKED)


def _takes_rows(kind: object) -> bool:
    known = None if kind is None else registry.find(str(kind))
    return known is not None and known.takes_rows


def _draw_choice() -> None:
    """Draw which rows of quarantine a replay takes."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="replay_rows"):
        st.segmented_control("Rows", list(_WHOSE), format_func=_WHOSE.__getitem__, key=_OF, required=True)
        st.selectbox(
            "Refused for", REASONS, key=_REFUSED_FOR, index=None, placeholder="any reason", width=210,
            help="Rows that killed a worker are taken only where they are chosen here.",
        )  # fmt: skip
        for label, key in (("First seen since (UTC)", _SINCE), ("and before (UTC)", _UNTIL)):
            st.text_input(label, key=key, placeholder="2026-01-31T12:00", max_chars=40, width=210, autocomplete="off")
    try:
        _choice()
    except Refused as refused:
        st.caption(f":material/block: {formatting.escaped(str(refused))}")


def _choice() -> dict[str, str | None]:
    """Return which rows a replay takes, as the fields have it.

    Raises:
        Refused: a time is none, or no row can be so.
    """
    refused_for = st.session_state.get(_REFUSED_FOR)
    times = [str(st.session_state.get(key) or "").strip() for key in (_SINCE, _UNTIL)]
    since, until = (moment(text) if text else None for text in times)
    return repairs.choice(None if refused_for is None else str(refused_for), since, until)


def _offer(environment: Environment) -> None:
    games = [str(key) for key in st.session_state.get(_GAMES) or []]
    kind = str(st.session_state.get(_KIND) or OperationKind.RETRY)
    confirm.stage_preview(_PLACE, partial(_planned, environment, kind, games))


def _planned(environment: Environment, kind: str, games: list[str]) -> previews.Preview:
    if not _takes_rows(kind):
        return previews.preview_repair(environment, kind, games)
    is_of_all = st.session_state.get(_OF) == "all"
    return previews.preview_repair(environment, kind, None if is_of_all else games, _choice())


header.keep_drawing(_live)
