"""Readers of silver and gold tables: a change of definitions shows them no more than they were granted. Pure.

A person who reads a table without its game may have to see nothing of what a mask hides. One who reads it with its game
may have to see nothing of another game, whose rows older versions of the table show.
"""

from collections.abc import Iterable, Iterator, Mapping

from pipeline.base.errors import Refused
from pipeline.base.names import derived_table_key, shown
from pipeline.data.derived.definitions import Definition, GoldDefinition, SilverDefinition


def require_no_more_shown(before: Iterable[Definition], then: Iterable[Definition], granted: Mapping[str, int]) -> None:
    """Check that no table which is granted by itself would show its readers more.

    Args:
        before: the definitions in force.
        then: those that would be.
        granted: how many grants of their own tables have, by key.

    Raises:
        Refused: naming each table that would, and what it would show.
    """
    was = {derived_table_key(each.kind, each.name): each for each in before}
    problems = []
    for each in then:
        key = derived_table_key(each.kind, each.name)
        count = granted.get(key, 0)
        if count and key not in was:
            problems.append(f"{key} was another table, of which {count} grants are not revoked yet. Try again later.")
        elif count and (more := sorted(set(_more(was[key], each)))):
            problems.append(
                f"{key} is granted by itself to {count} principals, who would see more: {', '.join(more)}. Revoke "
                "these grants first, or define another table."
            )
    if problems:
        raise Refused("\n".join(problems))


def require_own_games(past: Iterable[Iterable[Definition]], then: Iterable[Definition]) -> None:
    """Check that each name stays with its game, also where it was not in force for a while.

    Args:
        past: what was ever applied, the newest first.
        then: the definitions that would be in force.

    Raises:
        Refused: naming each table that would get another game.
    """
    games: dict[str, str] = {}
    for definitions in past:
        for each in definitions:
            games.setdefault(derived_table_key(each.kind, each.name), each.game)
    problems = [
        f"{each.name} was a {each.kind} table of {shown(of)}, and its older versions show that game's rows. Give the "
        f"table of {shown(each.game)} another name."
        for each in then
        if (of := games.get(derived_table_key(each.kind, each.name), each.game)) != each.game
    ]
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
