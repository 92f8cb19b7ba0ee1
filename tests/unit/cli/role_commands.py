"""Commands by the role that they need."""

READS = {
    "doctor", "schemas plan", "schemas list", "schemas requests", "schemas show", "schemas diff",
    "schemas types", "schemas variations", "schemas views",
    "games list", "games pending", "games rules list", "games rules plan", "contracts plan", "contracts show",
    "edge producers plan", "edge producers list", "edge producers token",
    "derived plan", "derived list", "books show", "books requests", "books verify",
    "ingest gaps", "wait",
    "verify", "paths", "status", "quarantine list", "quarantine show", "groups list", "repair actions", "ops list",
    "ops show", "audit list", "audit verify", "source probe", "grants matrix", "grants why", "grants plan",
    "grants export", "grants requests",
    "read", "incidents", "demo faults",
}  # fmt: skip
