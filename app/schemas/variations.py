"""Variations on the Schemas page: what a game's JSON without a schema had that was new, type by type. No values."""

from collections.abc import Callable
from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm
from app.look import parts
from app.schemas import previews, queries
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api.variation_acts import OperationKind
from pipeline.api.variations import UndeclaredType, VariationReport, VariationsReport
from pipeline.api.versions import GameVersions

_MOST_ROWS: Final = 1_000
_MOST_FACTS: Final = 5
_MOST_TYPES: Final = 30  # each with a button
_COLUMNS: Final = {
    "": st.column_config.TextColumn(width=30),
    "What is new": st.column_config.TextColumn(width=260),
    "Rows of version": st.column_config.TextColumn(width=90, alignment="right"),
    "First seen, UTC": st.column_config.TextColumn(width=130),
    "Last seen": st.column_config.TextColumn(width=85),
    "Version": st.column_config.NumberColumn(width=60),
}


def draw(environment: Environment, game: GameVersions) -> None:
    """Draw each event type whose columns follow from documents, then its variations, the newest first."""
    if not any(each.is_undeclared for each in game.versions):
        return
    found = queries.variations(environment, game)
    new = sum(each.new_today for each in found.types)
    with st.container(gap="small", key=f"card_schema_variations_{game.key}"):
        st.html(parts.section("Variations of undeclared JSON", f"{formatting.count(new)} new today"))
        for each in sorted(found.types, key=_urgency)[:_MOST_TYPES]:
            _draw_type(environment, game, each)
        if len(found.types) > _MOST_TYPES:
            left = formatting.count(len(found.types) - _MOST_TYPES)
            st.caption(
                f"{left} more event types; `turnout schemas variations` lists all, and `pin-variations` pins one."
            )
        _draw_table(found)
        _draw_refusing(environment, game, found)
        _draw_merging(environment, game, found)
        confirm.draw_confirmation(environment, _place(game))


def _urgency(each: UndeclaredType) -> tuple[bool, bool, str]:
    """Return the order of types: those that grow no more first, then those with something new today."""
    return not (each.pinned or each.closed), not each.new_today, each.type


def _place(game: GameVersions) -> str:
    return f"variations_{game.key}"


def _draw_type(environment: Environment, game: GameVersions, each: UndeclaredType) -> None:
    """Draw how a type stands, with the buttons that pin and declare it, or take that back."""
    st.text(_sentence(each))
    with st.container(horizontal=True):
        _draw_pinning(environment, game, each)
        _draw_declaring(environment, game, each)


def _draw_declaring(environment: Environment, game: GameVersions, each: UndeclaredType) -> None:
    kind = OperationKind.UNDECLARE_TYPE if each.declared else OperationKind.DECLARE_TYPE
    _draw_button(
        environment, game, kind,
        label="Undeclare…" if each.declared else "Declare…",
        key=f"declare_{game.key}_{each.schema_id}",
        icon=":material/schema:",
        preview=partial(previews.preview_declaration, environment, kind, game.key, each.type),
        says="Whether a JSON Schema with these columns decides about further documents.",
    )  # fmt: skip


def _draw_pinning(environment: Environment, game: GameVersions, each: UndeclaredType) -> None:
    kind = OperationKind.UNPIN_VARIATIONS if each.pinned else OperationKind.PIN_VARIATIONS
    _draw_button(
        environment, game, kind,
        label="Unpin…" if each.pinned else "Pin…",
        key=f"pin_{game.key}_{each.schema_id}",
        icon=":material/keep:",
        preview=partial(previews.preview_choice, environment, kind, game.key, each.type),
        says="Whether rows with something new open columns, or go to quarantine.",
    )  # fmt: skip


def _draw_button(
    environment: Environment,
    game: GameVersions,
    kind: OperationKind,
    *,
    label: str,
    key: str,
    icon: str,
    preview: Callable[[], Preview],
    says: str,
) -> None:
    """Draw the button that shows what an operation of a kind would do; disabled for people without its role."""
    needs = services.missing_role(environment, kind)
    st.button(
        label,
        key=key,
        icon=icon,
        on_click=confirm.stage_preview,
        args=(_place(game), preview),
        disabled=needs is not None,
        help=says if needs is None else formatting.escaped(needs),
    )


def _draw_refusing(environment: Environment, game: GameVersions, found: VariationsReport) -> None:
    """Draw the choice of a variation, and the button that refuses it or takes it again."""
    listed = {f"{each.type} {each.fingerprint}": each for each in found.variations[:_MOST_ROWS] if each.version}
    if not listed:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Variation",
            list(listed),
            key=f"variation_{game.key}",
            format_func=lambda each: _title(listed[each]),
        )
        chosen = listed[str(name)]
        kind = OperationKind.ALLOW_VARIATION if chosen.refused else OperationKind.REFUSE_VARIATION
        given = game.key, chosen.type, chosen.fingerprint
        _draw_button(
            environment, game, kind,
            label="Allow…" if chosen.refused else "Refuse…",
            key=f"refuse_{game.key}",
            icon=":material/block:",
            preview=partial(previews.preview_choice, environment, kind, *given),
            says="Whether later rows with it go to quarantine.",
        )  # fmt: skip


def _draw_merging(environment: Environment, game: GameVersions, found: VariationsReport) -> None:
    """Draw the choice of a column that has side columns, and the button that joins them."""
    listed = {f"{each.type} {column}": (each.type, column) for each in found.types for column in each.sided}
    if not listed:
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox(
            "Column with side columns",
            list(listed),
            key=f"sided_{game.key}",
            format_func=lambda each: formatting.shown(" · ".join(listed[each]), 160),
        )
        _draw_button(
            environment, game, OperationKind.MERGE_COLUMNS,
            label="Merge…",
            key=f"merge_{game.key}",
            icon=":material/merge:",
            preview=partial(previews.preview_merge, environment, game.key, *listed[str(name)]),
            says="One rebuild joins the column and its side columns.",
        )  # fmt: skip


def _title(each: VariationReport) -> str:
    return formatting.shown(f"{each.type} · {', '.join(each.facts[:_MOST_FACTS])} · {each.fingerprint}", 160)


def _sentence(each: UndeclaredType) -> str:
    """Say how an event type stands: what limits it, then how much of its limits it uses."""
    glyph, state = "✓", ""
    if each.closed:
        glyph, state = "△", "; a limit is reached, so rows with something new land whole as text"
    if each.declared:
        glyph, state = "✓", "; declared, so a schema decides about what is new"
    if each.pinned:
        glyph, state = "△", "; pinned, so rows with something new go to quarantine"
    refused = f", {formatting.count(each.refused)} refused" if each.refused else ""
    return (
        f"{glyph} {formatting.shown(each.type, 80)} · version {each.version} · {each.columns:,} of "
        f"{each.most_columns:,} columns · {each.variations:,} of "
        f"{each.most_variations:,} variations{refused}{state}"
    )


def _draw_table(found: VariationsReport) -> None:
    shown = found.variations[:_MOST_ROWS]
    if not shown:
        return
    st.dataframe(
        pd.DataFrame(_row(each, found.read_at) for each in shown),
        hide_index=True,
        row_height=36,
        height=min(36 * (len(shown) + 1) + 2, 400),
        column_config=_COLUMNS,
        alt="Variations of this game: what documents had that was new, the newest first.",
        key="schema_variations_table",
    )
    if len(found.variations) > _MOST_ROWS:
        left = formatting.count(len(found.variations) - _MOST_ROWS)
        st.caption(f"{left} more; `turnout schemas variations` lists all.")


def _row(each: VariationReport, now: float) -> dict[str, object]:
    more = len(each.facts) - _MOST_FACTS
    facts = ", ".join(each.facts[:_MOST_FACTS]) + (f" and {more} more" if more > 0 else "")
    return {
        "": "✗" if each.refused else "new" if each.new_today else "",
        "What is new": formatting.shown(facts, 400),
        "Event type": formatting.shown(each.type, 80),
        "Rows of version": formatting.count(each.count),
        "First seen, UTC": formatting.moment(each.first_seen)[:16],
        "Last seen": f"{formatting.age(max(0.0, now - each.last_seen))} ago",
        "Version": each.version,
        "Producer": formatting.UNKNOWN_VALUE if each.producer is None else formatting.shown(each.producer, 60),
        "Variation": each.fingerprint,
    }
