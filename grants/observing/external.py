"""Whether a table of the catalog is the one that turnout writes: external, where the game's table lies. Pure."""

from grants.model import MOVED, GameTable
from pipeline.platforms.local.catalog_checks import UNTRIED, CatalogCheck


def judged(table: GameTable | None, location: str, writer: str) -> CatalogCheck | None:
    """Return what is wrong with the catalog's table of a game; None where it is the game's own, or there is none.

    One whose place the catalog does not show, such as a view, is `unknown`, never the game's own.

    Args:
        table: as the catalog has it, None where it has no such table.
        location: the URI of the game's table.
        writer: `demux.writer`.

    Databricks' documentation says of managed tables with catalog commits that commits by way of files are refused, and
    readers ask the catalog for the newest ones (docs.databricks.com, delta/catalog-commits; Delta's protocol RFC
    catalog-managed). They are what a CREATE TABLE without LOCATION makes.
    """
    if table is None:
        return None
    subject = f"The table {table.securable.full_name}"
    if table.is_managed and writer == "spark":
        detail = "is managed by the catalog, and demux.writer is spark: nobody has tried that in a workspace."
        return CatalogCheck("untried", subject, detail, f"Try it there by {UNTRIED}.")
    if table.is_managed:
        detail = (
            "is managed by the catalog: the direct writer cannot commit to it, and DuckDB and delta-rs cannot read it "
            "once the catalog coordinates its commits."
        )
        remedy = f"Rename or drop it, create an external location above {location}, and turnout registers the table."
        return CatalogCheck("refused", subject, detail, remedy)
    is_own = table.lies_at(location)
    if is_own is None:
        detail = f"may be another than the game's at {location}: the catalog does not show where it lies."
        return CatalogCheck("unknown", subject, detail, "Rename or drop it, and turnout registers the game's.")
    if not is_own:
        detail = f"lies at {table.location}, and the game's table at {location}."
        drop = f"{MOVED}; else drop it" if table.is_left else "Drop it"
        return CatalogCheck("refused", subject, detail, f"{drop} from the catalog, and turnout registers the table.")
    return None
