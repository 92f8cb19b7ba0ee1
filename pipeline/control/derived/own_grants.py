"""Grants of silver and gold tables: no change of definitions shows more to their readers. Pure.

A person who reads a table without its game may have to see nothing of what a mask hides; one who reads it with its
game, nothing of another game.
"""

from collections.abc import Iterable, Iterator

from pipeline.base.errors import Refused
from pipeline.base.names import derived_table_key
from pipeline.data.derived.definitions import Definition, GoldDefinition, SilverDefinition
from pipeline.store.derived import TableGrants


def require_no_more_shown(before: Iterable[Definition], then: Iterable[Definition], grants: TableGrants) -> None:
    """Check that no table would show those more who were granted it.

    Args:
        before: the definitions in force.
        then: those that would be.
        grants: how many principals were granted tables.

    Raises:
        Refused: naming each table that would, and what it would show.
    """
    was = {derived_table_key(each.kind, each.name): each for each in before}
    problems = []
    for each in then:
        key = derived_table_key(each.kind, each.name)
        count, given = grants.own.get(key, 0), grants.given.get(key, 0)
        if key not in was and (still := max(count, given)):
            problems.append(f"{key} was another table, of which {still} grants are not revoked yet. Try again later.")
        elif count and (more := sorted(set(_more(was[key], each)))):
            problems.append(
                f"{key} is granted by itself to {count} principals, who would see more: {', '.join(more)}. Revoke "
                "these grants first, or define another table."
            )
        elif given and was[key].game != each.game:
            problems.append(
                f"{given} principals read {key} with their game, and would see rows of another one. Remove the stream "
                "first, or define another table."
            )
    if problems:
        raise Refused("\n".join(problems))


def _more(before: Definition, then: Definition) -> Iterator[str]:
    """Yield what a table would show that it does not show now."""
    match before, then:
        case SilverDefinition(), SilverDefinition():
            yield from _more_of_silver(before, then)
        case GoldDefinition(), GoldDefinition():
            yield from _more_of_silver(before.silver, then.silver)
            if (before.window, before.by, before.aggregates) != (then.window, then.by, then.aggregates):
                yield "other aggregates"


def _more_of_silver(before: SilverDefinition, then: SilverDefinition) -> Iterator[str]:
    if (before.game, before.type) != (then.game, then.type):
        yield "rows of another game or event type"
    masks = dict(then.mask)
    for path, mask in before.mask:
        parts = path.split(".")
        above = {masks.get(".".join(parts[:length])) for length in range(1, len(parts) + 1)}
        if masks.get(path) != mask and "drop" not in above:
            yield path
