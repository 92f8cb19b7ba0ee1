"""One game on the Schemas page: two of its versions compared in words and as text, its versions, ids and needs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm, links, type_table
from app.look import parts
from app.schemas import listing, previews, queries, variations
from app.state import services
from app.state.readings import Reading, reading
from app.state.services import Environment
from listeners.sample import StreamState
from pipeline.api.schemas import Catalogue, FieldLine, Line, SchemaRows, Step, Usage
from pipeline.api.versions import GameVersions, Version
from pipeline.base.errors import Refused
from pipeline.control.acts import DirectAct
from pipeline.data.contracts.policies import Policies, landing
from pipeline.data.contracts.shape_needs import SHAPES, UNNAMED, of_writer
from pipeline.data.contracts.writer_ids import shown_writer

_MOST_LINES: Final = 2_000  # of text
_MOST_WAITING: Final = 10  # versions of other event types; the list of types has all
_TALL: Final = 16  # lines; more scroll
_GLYPHS: Final = {"refuse": "✗", "quarantine": "✗"}
_BEFORE: Final = "before"  # of the two lists: their meaning moves on with each new version
_NEWEST: Final = "newest"
_VERSION_COLUMNS: Final = {
    "Version": st.column_config.NumberColumn(width=60),
    "In the table": st.column_config.TextColumn(width=95, alignment="right"),
    "First row, UTC": st.column_config.TextColumn(width=130),
    "Last row": st.column_config.TextColumn(width=85),
}


def linked(key: str) -> dict[str, str]:
    """Return the URL's parameters for the two versions of a game, and their widgets."""
    return {"from": f"schema_from_{key}", "to": f"schema_to_{key}"}


def take_versions(game: GameVersions) -> dict[str, tuple[str, ...]]:
    """Lay the two versions that the URL names into their lists; return what of it is not known."""
    if not game.versions:
        return {}
    known, widgets = [str(each.version) for each in game.versions], linked(game.key)
    return {
        "from": links.take("from", widgets["from"], [_BEFORE, *known], default=_BEFORE),
        "to": links.take("to", widgets["to"], [_NEWEST, *known], default=_NEWEST),
    }


def draw(environment: Environment, catalogue: Catalogue, game: GameVersions, live: StreamState | None) -> None:
    """Draw a game: trouble first, then its event types, the comparison, what the table got, where it comes from.

    `live` is its driver's report, if that describes the present.
    """
    with st.container(horizontal=True, vertical_alignment="center"):
        state = listing.state_of(game, catalogue)
        formats = ", ".join(formatting.shown(each, 20) for each in game.formats)
        title = parts.title(formatting.shown(game.game, 80), listing.STATES[state], listing.TONES[state], formats)
        st.html(title, width="stretch")
        st.button("Close", key="close_game", on_click=_close, args=(game.key,), type="tertiary")
    st.caption(f"key {game.key}")
    waiting = [each for each in game.quarantined if each.placement.other_type]
    for each in (*(one for one in game.quarantined if one not in waiting), *waiting[:_MOST_WAITING]):
        _draw_quarantined(environment, game, each)
    if len(waiting) > _MOST_WAITING:
        st.text(f"✗ Rows of {len(waiting) - _MOST_WAITING:,} more versions are of other event types, too.")
    confirm.draw_confirmation(environment, f"land_{game.key}")  # also once the version's rows land: it says so
    reason = "other_type" if any(each.placement.other_type for each in game.versions) else "quarantined_schema"
    if game.versions:  # also once all land: what was refused before waits in quarantine until it is replayed
        st.page_link(
            "views/repairs.py",
            label=f"Replay its refused rows{', once they can land' if game.quarantined else ''}",
            icon=":material/replay:",
            query_params={"repair": "replay", "games": game.key, "refused_for": reason},
        )
    _draw_or_say(partial(_draw_needs, environment, catalogue, game))
    if not game.versions:
        st.info("No schema is registered for this game. Register one, or let its registry answer.")
        return
    type_table.draw(environment, game.key, live, catalogue.read_at)
    first, second = _draw_choice(game)
    _draw_or_say(partial(_draw_comparison, environment, first, second))
    _draw_or_say(partial(_draw_version, environment, game, second))
    _draw_or_say(partial(variations.draw, environment, game))
    _draw_versions(environment, game, catalogue.read_at)
    _draw_or_say(partial(_draw_writers, environment, game))


def _draw_quarantined(environment: Environment, game: GameVersions, version: Version) -> None:
    """Draw why the rows of a version do not land, and how they can."""
    st.text(
        f"✗ Rows of version {version.version} go to quarantine since {formatting.moment(version.created_at)}: "
        f"{formatting.shown(version.quarantined or '', 500)}"
    )
    policies = None if version.placement.other_type else _landing(environment, game, version)
    if policies is None:
        return
    words = ", ".join(f"{kind}={policy}" for kind, policy in policies.chosen)
    needs = services.missing_role(environment, DirectAct.REGISTER_SCHEMA)
    st.button(
        "Let its next rows land…",
        key=f"land_{game.key}_{version.version}",
        icon=":material/alt_route:",
        on_click=confirm.stage_preview,
        args=(f"land_{game.key}", partial(previews.preview_again, environment, game, version, policies)),
        disabled=needs is not None,
        help=f"Registers version {version.version} again with {words}." if needs is None else formatting.escaped(needs),
    )


def _landing(environment: Environment, game: GameVersions, version: Version) -> Policies | None:
    """Return policies by which the rows of a version would land; None where no policy lets them in."""
    try:
        steps = queries.one_version(environment, game, version).effect
    except Refused:  # the panel says so where it draws the version
        steps = ()
    return landing(version.policies, {each.kind for each in steps if each.policy == "quarantine"})


def _draw_or_say(draw_part: Callable[[], None]) -> None:
    """Draw a part, or why it cannot be read; the others stay."""
    try:
        draw_part()
    except Refused as refused:
        st.warning(formatting.escaped(str(refused)), icon=":material/unknown_document:")


def _close(key: str) -> None:
    """Take the game out of the URL; the form then registers schemas of any game."""
    links.forget("game", *linked(key))


def _draw_choice(game: GameVersions) -> tuple[Version, Version]:
    numbers = {str(each.version): each for each in reversed(game.versions)}
    widgets = linked(game.key)
    second = numbers.get(str(st.session_state.get(widgets["to"])), game.versions[-1])
    before = numbers.get(str(second.version - 1), second)
    first = numbers.get(str(st.session_state.get(widgets["from"])), before)
    texts = {number: _title(each) for number, each in numbers.items()}
    texts |= {_BEFORE: f"the one before: {_title(before)}", _NEWEST: f"the newest: {_title(game.versions[-1])}"}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        for label, widget, default in (
            ("From version", widgets["from"], _BEFORE),
            ("To version", widgets["to"], _NEWEST),
        ):
            st.selectbox(label, [default, *numbers], key=widget, format_func=lambda each: texts.get(each, each))
    return first, second


def _title(version: Version) -> str:
    by = formatting.UNKNOWN_VALUE if version.registered_by is None else formatting.shown(version.registered_by, 40)
    return f"{version.version} · {formatting.moment(version.created_at)[:16]} · {by}"


def _draw_comparison(environment: Environment, first: Version, second: Version) -> None:
    found = queries.comparison(environment, first, second)
    st.caption(f"What changes from version {first.version} to version {second.version}")
    with st.container(gap=None, key="card_schema_changes"):
        if not found.changes:
            st.text("No change of any field.")
        for step in found.changes:
            st.text(f"{formatting.shown(step.kind, 20)} · {formatting.shown(str(step), 300)}")
    if found.more_changes:
        st.caption(f"{found.more_changes:,} more; `turnout schemas diff` prints all.")
    _draw_text(found.text)


def _draw_text(lines: Sequence[Line]) -> None:
    """Draw both versions as one text: lines that go and lines that come, each with its sign."""
    shown = [(line.mark, _indented(line.text)) for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        shown.append((" ", f"and {len(lines) - _MOST_LINES} more lines"))
    with st.container(height=380 if len(shown) > _TALL else "content", border=False, key="schema_text"):
        st.html(parts.diff(shown))


def _indented(text: str) -> str:
    return " " * (len(text) - len(text.lstrip(" "))) + formatting.shown(text, 200)


def _draw_version(environment: Environment, game: GameVersions, version: Version) -> None:
    found = queries.one_version(environment, game, version)
    st.caption(f"What the game's table got from version {version.version}")
    with st.container(gap=None, key="card_schema_effect"):
        if version.placement.undeclared:
            st.text(formatting.shown(version.quarantined or "", 300))
        elif version.quarantined is not None:
            st.text(f"Nothing: its rows go to quarantine. {formatting.shown(version.quarantined, 300)}")
        elif not found.effect:
            st.text("Its first columns." if version.version == 1 else "No change.")
        for step in () if version.quarantined is not None else found.effect:
            st.text(_effect_text(step))
        if found.more_effect and version.quarantined is None:
            st.caption(f"{found.more_effect:,} more; `turnout schemas show` prints all.")
    with st.expander(f"Fields of version {version.version}", icon=":material/list:", key="schema_fields"):
        st.text(f"{formatting.shown(version.message, 200)} · {formatting.shown(version.format, 20)}")
        st.dataframe(
            pd.DataFrame(_field_row(each) for each in found.fields),
            hide_index=True,
            height=min(36 * (len(found.fields) + 1), 400),
            alt=f"Fields of version {version.version} with their columns in the game's table.",
            key="schema_fields_table",
        )


def _effect_text(step: Step) -> str:
    place = "" if step.column is None else f" → column {formatting.shown(step.column, 120)} {step.type}"
    rows = f"old rows {step.old_rows}; new rows {step.new_rows}"
    glyph = _GLYPHS.get(step.policy, "△" if step.breaks else "✓")
    return f"{glyph} {formatting.shown(str(step), 300)} ({step.kind}: {step.policy}){place}; {rows}"


def _field_row(each: FieldLine) -> dict[str, str]:
    return {
        "Field": formatting.shown(each.path, 160),
        "Number": str(each.id) if isinstance(each.id, int) else formatting.UNKNOWN_VALUE,
        "Type": formatting.shown(each.type, 80),
        "May be absent": "yes" if each.optional else "no",
        "Column": formatting.UNKNOWN_VALUE if each.column is None else formatting.shown(each.column, 160),
        "Column's type": formatting.UNKNOWN_VALUE
        if each.column_type is None
        else formatting.shown(each.column_type, 160),
        "Values": formatting.shown(", ".join(each.values), 200) if each.values else formatting.UNKNOWN_VALUE,
    }


def _draw_versions(environment: Environment, game: GameVersions, now: float) -> None:
    """Draw all versions with the rows that each has in the game's table; a table that is away leaves the rest."""
    refusing = {each.version for each in game.quarantined}
    many = len(game.versions)
    title = f"All {many} versions, and their use" if many > 1 else "The only version, and its use"
    box = st.expander(title, icon=":material/history:", key=f"schema_versions_{game.key}", on_change="rerun")
    with box:
        if not box.open:
            return
        seen = reading("used", (environment.store, game.key), lambda: queries.used(environment, game.key))
        st.html(parts.note(_about_use(seen)))
        st.dataframe(
            pd.DataFrame(
                {
                    "Version": each.version,
                    **_use(each, seen.value, now),
                    "Rows": "go to quarantine" if each.version in refusing else "are accepted",
                    "Registered": formatting.moment(each.created_at)[:16],
                    "By": formatting.UNKNOWN_VALUE
                    if each.registered_by is None
                    else formatting.shown(each.registered_by, 60),
                    "Format": formatting.shown(each.format, 20),
                    "Message": formatting.shown(each.message, 120),
                    "Policies": ", ".join(f"{kind}={policy}" for kind, policy in each.policies.chosen) or "defaults",
                    "Schema id": each.schema_id,
                }
                for each in reversed(game.versions)
            ),
            hide_index=True,
            row_height=36,
            height=min(36 * (many + 1) + 2, 400),
            column_config=_VERSION_COLUMNS,
            alt="Versions of this game with the rows that each has in the game's table, newest first.",
            key="schema_versions_table",
        )


def _about_use(seen: Reading[Usage]) -> str:
    """Say what the numbers are of, and what is not known."""
    words = "Rows in the game's table now, by the source's time. Versions of one schema id share them."
    if seen.value is not None and seen.value.files_left:
        words += f" {seen.value.files_left} older files of several versions were not read: numbers are lower bounds."
    if seen.failed:
        until = "not known" if seen.good_at is None else f"of {formatting.clock(seen.good_at)}"
        words += f" Use is {until}: {formatting.shown(seen.why or '', 200)}"
    return words


def _use(version: Version, used: Usage | None, now: float) -> dict[str, str]:
    """Return how many rows of a version landed, and when its first and last came; 0 only where all were counted."""
    found = None if used is None else used.schemas.get(version.schema_id, SchemaRows(0, None, None))
    if used is None or found is None or not (found.rows or used.is_complete):
        return dict.fromkeys(("In the table", "First row, UTC", "Last row"), formatting.UNKNOWN_VALUE)
    least = "" if used.is_complete else "≥ "
    last = found.last_at
    return {
        "In the table": f"{least}{formatting.count(found.rows)}",
        "First row, UTC": formatting.moment(found.first_at)[:16],
        "Last row": formatting.UNKNOWN_VALUE if last is None or last > now + 1 else f"{formatting.age(now - last)} ago",
    }


def _draw_needs(environment: Environment, catalogue: Catalogue, game: GameVersions) -> None:
    """Draw what the game waits for, with its registries' last answers."""
    if game.key not in catalogue.waiting:
        return
    needs = queries.writers(environment, game).needs
    total = sum(each.writers for each in catalogue.waiting[game.key])
    for each in needs[:5]:
        waits = formatting.age(catalogue.read_at - each.wanted_at)
        answer = "not answered yet" if each.answer is None else formatting.shown(each.answer, 300)
        what = (
            f"shapes of documents of the event type {formatting.shown(of_writer(each.writer)[0] or UNNAMED, 80)}"
            if each.registry == SHAPES
            else f"schema {formatting.shown(shown_writer(each.writer), 80)} of registry "
            f"{formatting.shown(each.registry, 60)}"
        )
        st.text(f"△ Waits for {what} for {waits}: {answer}")
    if total > 5:
        st.text(f"{total} ids in all.")


def _draw_writers(environment: Environment, game: GameVersions) -> None:
    known = queries.writers(environment, game).known
    if not known:
        return
    versions = {each.schema_id: each.version for each in game.versions}
    with st.expander("Ids of registries for these schemas", icon=":material/tag:", key="schema_writers"):
        st.dataframe(
            pd.DataFrame(
                {
                    "Registry": formatting.shown(registry, 60),
                    "Id": formatting.shown(named, 120),
                    "Version": versions.get(schema_id),
                    "Schema id": schema_id,
                }
                for registry, named, schema_id in known
            ),
            hide_index=True,
            height=min(36 * (len(known) + 1), 300),
            alt="Ids that registries gave the schemas of this game, newest first.",
            key="schema_writers_table",
        )
