"""The onboarding rules on the Games page: those in force, as a table and as a file, and a file that replaces them.

`lines` is pure.
"""

from functools import partial
from typing import Final

import pandas as pd
import streamlit as st

from app import formatting
from app.components import confirm
from app.games import previews
from app.look import parts
from app.state import services
from app.state.previews import Preview
from app.state.services import Environment
from pipeline.api.games import ALL_TYPES, GamesOverview, OnboardingRule, RuleSet
from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited
from pipeline.control.acts import DirectAct

PLACE: Final = "game_rules"
_FILE: Final = "rules_file"
_MOST_NAMED: Final = 5
_COLUMNS: Final = {
    "Names": st.column_config.TextColumn(width=190, help="Exact names, which are games at once."),
    "Prefixes": st.column_config.TextColumn(width=170, help="Names that begin so become games when they arrive."),
    "Formats": st.column_config.TextColumn(width=90, help="Only names whose payloads have one of these formats."),
    "Per hour": st.column_config.TextColumn(width=80, help="Most games by its prefixes within an hour."),
    "Applied by": st.column_config.TextColumn(help="The person whom its readers were allowed by."),
}


def draw(environment: Environment, seen: GamesOverview) -> None:
    """Draw the rules in force, and the form that replaces them."""
    rules = seen.rules
    with st.container(border=True, key="card_games_rules", gap="small"):
        st.html(parts.section("Onboarding rules", about(rules, seen.read_at)))
        if rules.rules:
            st.dataframe(
                pd.DataFrame(lines(rules.rules)),
                hide_index=True,
                column_config=_COLUMNS,
                placeholder=formatting.UNKNOWN_VALUE,
                alt="Onboarding rules: which names become games by them, and what such a game gets.",
                key="games_rules",
            )
        else:
            st.html(parts.note("No rule: a name becomes a game by a registered schema or an approval."))
        _draw_form(environment, seen)
    confirm.draw_confirmation(environment, PLACE)


def about(rules: RuleSet, now: float) -> str:
    """Say who applied the rules, and when."""
    if not rules.number:
        return "none was ever applied"
    return f"applied by {formatting.shown(rules.actor, 60)} {formatting.age(now - rules.applied_at)} ago"


def lines(rules: tuple[OnboardingRule, ...]) -> list[dict[str, str | None]]:
    """Return the rules as lines of a table."""
    return [
        {
            "Rule": formatting.shown(each.name, 60),
            "Names": _some(each.names),
            "Prefixes": _some(each.prefixes),
            "Formats": _some(each.formats),
            "Group": None if each.group is None else formatting.shown(each.group, 40),
            "Priority": each.priority,
            "Policies": _some(tuple(f"{kind}={policy}" for kind, policy in each.policies)),
            "Readers": _some(each.readers),
            "Event types": "all" if each.event_types == (ALL_TYPES,) else _some(each.event_types),
            "Per hour": str(each.max_new_per_hour) if each.prefixes or each.formats else None,
            "Applied by": formatting.shown(each.changed_by, 60),
        }
        for each in rules
    ]


def _some(texts: tuple[str, ...]) -> str | None:
    return join_limited(texts, _MOST_NAMED, lambda each: formatting.exact(each, 60)) if texts else None


def _draw_form(environment: Environment, seen: GamesOverview) -> None:
    needs = services.missing_role(environment, DirectAct.CHANGE_RULES)
    with st.expander("Replace the rules by those of a file", icon=":material/upload_file:", key="games_rules_form"):
        _draw_file(seen.rules_file)
        with st.form("fields_rules", enter_to_submit=False, border=False):
            st.file_uploader("File of rules (YAML)", type=["yml", "yaml"], key=_FILE)
            st.form_submit_button(
                "Preview the rules",
                key="preview_rules",
                on_click=confirm.stage_preview,
                args=(PLACE, partial(_planned, environment)),
                disabled=needs is not None,
            )
        if needs is not None:
            st.caption(formatting.escaped(needs))


def _draw_file(text: str) -> None:
    """Draw the rules in force as a file to begin with, in which each character can be seen."""
    st.caption("The rules in force, as such a file. Games that exist stay as they are.")
    st.code(text, language="yaml")


def _planned(environment: Environment) -> Preview:
    """Plan what the file says.

    Raises:
        Refused: there is none, or as `game_acts.preview_rules`.
    """
    file = st.session_state.get(_FILE)
    if file is None:
        raise Refused("Choose a file of rules.")
    try:
        text = file.getvalue().decode()
    except UnicodeDecodeError as error:
        raise Refused("The file of rules is no UTF-8 text. Save it as UTF-8.") from error
    return previews.preview_rules(environment, text)
