"""Who may read which game's table: the settings of `[access]`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pipeline.base.errors import Refused
from pipeline.settings.parsing import Range


@dataclass(frozen=True, slots=True)
class Access:
    """Who may read which game's table, and which catalog keeps it: see docs/access.md."""

    catalog: Literal["embedded", "unity", "databricks"] = "embedded"
    """`embedded` is turnout's own server for one machine (`turnout catalog serve`), `unity` an open-source Unity
    Catalog server, `databricks` a workspace. The environment's variables hold their addresses and tokens."""

    catalog_name: str = "turnout"
    """The catalog of the games' tables: letters, digits, `_` and `-`."""

    schema_name: str = "games"
    """The schema of the games' tables. turnout changes access in no other schema."""

    port: Annotated[int, Range(1, 65_535)] = 8810
    """Port of the embedded catalog, on loopback."""

    refresh_seconds: Annotated[float, Range(1, 3600)] = 30.0
    """Time between two reads of the whole catalog by the controller, which also reads right after its own changes.
    Within about this time it reports drift."""

    reads_per_second: Annotated[float, Range(0.1, 1000)] = 10.0
    """Most reads per second of one process from a catalog other than the embedded one."""

    max_grant_days: Annotated[float, Range(0.01, 3650)] = 180.0
    """Longest time until access with an end expires."""

    allow_everyone: bool = False
    """Whether turnout may grant access to `account users`, which is everyone."""

    identities: Mapping[str, str] = field(default_factory=dict)
    """User of the system → principal of the catalog, where the two differ, so that nobody grants access to
    themselves. E-mail addresses compare without case. Except with the embedded catalog, a user without an entry
    whose own name is not in the catalog may neither grant nor approve."""

    operators_see_values: bool = False
    """Where roles are set: whether the dashboard shows operators the values of rows of every game. Without it landed
    rows show values to people who may read that game's table in the catalog, and refused rows to nobody. Each look is
    in the audit log."""

    members_file: str = ""
    """With `unity`: a YAML file with the members of groups, since an open-source server has no groups."""

    warehouse: str = ""
    """With `databricks`: the id of a SQL warehouse, for grants by SQL and for read probes."""

    sql_grants: bool = False
    """With `databricks`: whether grants are SQL statements on the warehouse instead of REST requests."""

    probe_principal: str = ""
    """With `databricks`: the principal of the token `DATABRICKS_PROBE_TOKEN`. turnout probes only this principal's
    access after a change."""

    def require_views(self) -> None:
        """Require a catalog in which turnout can keep views.

        Raises:
            Refused: the settings name another one; before an operation waits for it.
        """
        if self.catalog != "databricks":
            raise Refused(
                f"The catalog of this environment ({self.catalog}) has no views. `turnout schemas views` prints them "
                f"for DuckDB."
            )
        if not self.warehouse:
            raise Refused("Views need a SQL warehouse of a Databricks workspace. Set access.warehouse.")
