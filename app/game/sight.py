"""Which of a game's rows a viewer may see, decided before anything is read, and each look at values in the audit log.

Called by `rows_panel.py` and `gold_chart.py`. What is not known is hidden: no old snapshot of the catalog shows
anything to anybody.
"""

import time
from dataclasses import dataclass
from typing import Final

import streamlit as st

from app.access import queries
from app.gate import Person
from app.state import services
from app.state.services import Environment
from grants.api.access import why_values_hidden
from pipeline.api.audit import note
from pipeline.api.rows import Depth, RowKind
from pipeline.control.roles import Role, may, roles_of

ACTION: Final = "see values of rows"
"""What the audit log calls a look."""

LOOK_SECONDS: Final = 900.0
"""A tab that shows the rows of one game is one look for this time."""

_SETTING: Final = "access.operators_see_values"
_LOOKS: Final = "looks"  # of the session: when each look was written


@dataclass(frozen=True, slots=True)
class Sight:
    """What a viewer may see of rows, why no more, and what lets them see values."""

    depth: Depth
    why_not: str | None = None  # None: nothing is hidden
    by: str | None = None  # None: no values, or those of a laptop without roles, whose looks are not written


def sight(environment: Environment, key: str, kind: RowKind, viewer: Person) -> Sight:
    """Return what a viewer may see of a game's landed or refused rows.

    On a laptop without roles everybody sees all of it. Elsewhere values of landed rows follow the viewer's own SELECT
    as the catalog was last seen; those of refused rows, which no table has and no mask covers, never do. Operators see
    the shapes of refused rows, and with the setting `access.operators_see_values` all values.

    Raises:
        Refused: the control store cannot be read.
    """
    known = services.roles(environment)
    if roles_of(known, viewer.name) is None and not viewer.by_platform:
        return Sight("values")
    is_operator = not services.only_look(known, viewer) and may(known, viewer.name, Role.OPERATOR)
    if is_operator and environment.settings.access.operators_see_values:
        return Sight("values", by=f"the setting {_SETTING}")
    if kind == "refused":
        if is_operator:
            return Sight("shapes", f"values are hidden unless the setting {_SETTING} shows them to operators")
        return Sight("places", "shapes are shown to operators")
    why_not = _why_unreadable(environment, key, viewer)
    return Sight("values", by="SELECT in the catalog") if why_not is None else Sight("places", why_not)


def note_look(environment: Environment, key: str, kind: str, viewer: Person, seen: Sight) -> None:
    """Write a look at values into the audit log, before anything is read.

    Within 15 minutes the same rows in the same tab are one look, however often they are drawn; `kind` says which.

    Raises:
        Refused: the log cannot be written.
    """
    if seen.by is None:
        return
    looks: dict[tuple[str, ...], float] = st.session_state.setdefault(_LOOKS, {})
    look, now = (viewer.name, key, kind, seen.by), time.monotonic()
    if now - looks.get(look, -LOOK_SECONDS) < LOOK_SECONDS:
        return
    detail = {"rows": kind, "by": seen.by}
    note(services.opened(environment), viewer.name, ACTION, f"game:{key}", detail)
    looks[look] = now


def _why_unreadable(environment: Environment, key: str, viewer: Person) -> str | None:
    """Return why a viewer is not known to read a game's table with all its values; None where they do."""
    known = queries.known_catalog(environment)
    if known is None:
        return "values are hidden: your access is not known, as the catalog was never read"
    why = why_values_hidden(services.opened(environment), known, viewer.name, key)
    return None if why is None else f"values are hidden: {why}"
