"""A finding, and its incident."""

from pipeline.health.incidents.causes import Action, Finding
from pipeline.health.incidents.incidents import Incident
from pipeline.store.database.states import Cause

FINDING = Finding(
    Cause.SCHEMA, "Rows of 2 games refused since schema version 7", ("492 rows",), ("its neighbours are well",),
    Action("Compare versions…", "schemas", {"game": "chess"}), "turnoutrejectratiohigh", "Rows of {} refused", "x",
)  # fmt: skip
OPEN = Incident(
    "i1", FINDING, ("chess", "go"), "a", 10.0, None, "level in about 4 min at this rate", "late", 11.0, left=("ludo",)
)
