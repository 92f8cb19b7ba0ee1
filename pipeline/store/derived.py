"""Derived streams in the control store: their definitions as people applied them, and how drivers carry them.

The tables themselves know where they are; a row here saves readers the look.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from pipeline.base.errors import Refused
from pipeline.base.names import game_key, parted_table_key
from pipeline.store import audit
from pipeline.store.database.engine import reading, writing
from pipeline.store.database.report_tables import derived_control, derived_states
from pipeline.store.database.tables import derived_streams, entitlements, games, rule_tables
from pipeline.store.processes.leases import store_now
from pipeline.store.rows import DerivedControl, DerivedState, DerivedStream, RuleTable

_RULE: Final = "rule"  # the kind of an entry that is no stream


@dataclass(frozen=True, slots=True)
class AppliedStreams:
    """The definitions of one application."""

    number: int = 0  # 0: none was ever applied
    definitions: str = "[]"  # JSON, rules too


NONE: Final = AppliedStreams()
"""What is in force before the first application."""

Planner: TypeAlias = Callable[[AppliedStreams, list[RuleTable]], list[RuleTable]]
"""Returns which tables rules make, from the file and those that they made before."""


Check: TypeAlias = Callable[[str, str, Mapping[str, int], Sequence[str]], None]
"""Refuses definitions in force, by those before, these, how many grants of their own tables have, by key, and all that
were ever applied, the newest first."""


def read_definitions(engine: Engine) -> AppliedStreams:
    """Return the definitions and rules as a person applied them."""
    with reading(), engine.connect() as connection:
        return definitions_in(connection)


def read_in_force(engine: Engine) -> str:
    """Return the JSON of all definitions in force: those of the file, then those that its rules made."""
    with reading(), engine.connect() as connection:
        return in_force_in(connection)


def read_rule_tables(engine: Engine) -> list[RuleTable]:
    """Return the tables that rules made, and the event types without one, by name."""
    with reading(), engine.connect() as connection:
        return _rule_tables(connection)


def keep_rule_tables(engine: Engine, plan: Planner) -> list[RuleTable]:
    """Let the tables that rules make be those that a plan says; two drivers plan one after the other."""
    with reading(), engine.connect() as connection:
        applied, known = definitions_in(connection), _rule_tables(connection)
    if plan(applied, known) == known:
        return known
    with writing(engine) as connection:
        audit.lock_log(connection)
        return keep_rule_tables_in(connection, plan)


def keep_rule_tables_in(connection: Connection, plan: Planner) -> list[RuleTable]:
    """Do so in a transaction that holds the audit log's lock."""
    known = _rule_tables(connection)
    then = plan(definitions_in(connection), known)
    gone = {each.name for each in known} - {each.name for each in then}
    changed = [each for each in then if each not in known]
    named = [*gone, *(each.name for each in changed)]
    connection.execute(delete(rule_tables).where(rule_tables.c.name.in_(named)))
    if changed:
        connection.execute(insert(rule_tables), [asdict(each) for each in changed])
    _forget_states(connection)
    return then


def apply(
    engine: Engine,
    definitions: str,
    seen: int,
    actor: str,
    reason: str,
    plan: Planner = lambda _, known: known,
    check: Check = lambda *_: None,
) -> AppliedStreams:
    """Write definitions as the newest ones, with their audit entry, if the newest are still those that were seen.

    `plan` says which tables their rules make, from the same moment on; `check` sees what is in force then.

    Raises:
        Refused: another person has applied some meanwhile, or the check refuses it.
    """
    with writing(engine) as connection:
        audit.lock_log(connection)
        if definitions_in(connection).number != seen:
            raise Refused("Other derived streams were applied after you looked. Plan again.")
        before, past = in_force_in(connection), _past(connection)
        apply_within(connection, definitions, actor, reason)
        keep_rule_tables_in(connection, plan)
        check(before, in_force_in(connection), _granted(connection), past)
        return definitions_in(connection)


def apply_within(
    connection: Connection, definitions: str, actor: str, reason: str, operation_id: str | None = None
) -> None:
    """Write definitions as the newest ones, with their audit entry; the caller's transaction holds the log's lock."""
    listed = json.loads(definitions)
    act = audit.Act(actor, "apply derived streams", ("derived",), operation_id, {"derived": listed, "reason": reason})
    audit.begin(connection, act)
    values = {"definitions": definitions, "actor": actor, "reason": reason, "applied_at": store_now()}
    connection.execute(insert(derived_streams).values(number=definitions_in(connection).number + 1, **values))
    _forget_states(connection)
    audit.end(connection, act, "succeeded")


def _forget_states(connection: Connection) -> None:
    """Remove how streams were carried that are in force no more."""
    named = [each["name"] for each in json.loads(in_force_in(connection))]
    connection.execute(delete(derived_states).where(derived_states.c.name.not_in(named)))


def streams_in(connection: Connection) -> list[DerivedStream]:
    """Return the derived streams in force, with the groups of their games, in the order of their file."""
    trees = json.loads(in_force_in(connection))
    # Of a gold table the definition has its silver table's.
    listed = [(each["name"], game_key(each.get("silver", each)["game"]), each.get("silver")) for each in trees]
    if not listed:
        return []
    named = games.c.game_key.in_({key for _, key, _ in listed})
    rows = connection.execute(select(games.c.game_key, games.c.group_name).where(named))
    groups = {row.game_key: row.group_name for row in rows}
    states, controls = states_in(connection), controls_in(connection)
    return [
        DerivedStream(
            name, key, groups.get(key), states.get(name), control_of(controls, name),
            None if silver is None else control_of(controls, silver["name"]),
        )
        for name, key, silver in listed
    ]  # fmt: skip


def left_out_in(connection: Connection) -> dict[str, int]:
    """Return of how many event types a cap leaves each game without a table, by the keys of games with any."""
    table = rule_tables
    query = select(table.c.game_key, func.count()).where(table.c.number == 0).group_by(table.c.game_key)
    return {row.game_key: row[1] for row in connection.execute(query)}


def read_streams(engine: Engine) -> dict[str, DerivedStream]:
    """Return each derived stream in force, by its name, as `streams_in`."""
    with engine.connect() as connection:
        return {each.name: each for each in streams_in(connection)}


def read_controls(engine: Engine) -> dict[str, DerivedControl]:
    """Return what people decided, as `controls_in`."""
    with reading(), engine.connect() as connection:
        return controls_in(connection)


def control_of(controls: Mapping[str, DerivedControl], name: str) -> DerivedControl:
    """Return what was decided about a stream, of all decisions."""
    return controls.get(name) or DerivedControl(name)


def controls_in(connection: Connection) -> dict[str, DerivedControl]:
    """Return what people decided about derived streams, by name; of the others nobody decided anything."""
    rows = connection.execute(select(*(derived_control.c[name] for name in DerivedControl.__slots__)))
    return {row.name: DerivedControl(*row) for row in rows}


def pause_within(connection: Connection, name: str, actor: str, reason: str) -> None:
    """Let a derived stream stand still until it is resumed, in the caller's transaction."""
    _decide(connection, name, {"paused_at": store_now(), "paused_by": actor, "reason": reason})


def resume_within(connection: Connection, name: str) -> None:
    """Let a paused derived stream go on, in the caller's transaction."""
    _decide(connection, name, {"paused_at": None, "paused_by": None, "reason": None})


def replace_within(connection: Connection, name: str, generation_id: str) -> None:
    """Let a derived stream replace this generation of its table, in the caller's transaction."""
    _decide(connection, name, {"replaces": generation_id})


def _decide(connection: Connection, name: str, values: Mapping[str, Any]) -> None:
    table = derived_control
    if not connection.execute(update(table).where(table.c.name == name).values(values)).rowcount:
        connection.execute(insert(table).values(name=name, **values))


def write_states(engine: Engine, states: Collection[DerivedState]) -> None:
    """Replace what is known of some derived streams."""
    with writing(engine) as connection:
        named = [each.name for each in states]
        connection.execute(delete(derived_states).where(derived_states.c.name.in_(named)))
        for each in states:
            connection.execute(insert(derived_states).values(asdict(each)))


def in_force_in(connection: Connection) -> str:
    """Return the JSON of all definitions in force within a transaction, as `read_in_force`."""
    applied = [each for each in json.loads(definitions_in(connection).definitions) if each["kind"] != _RULE]
    made = [json.loads(each.definition) for each in _rule_tables(connection) if each.definition is not None]
    return json.dumps([*applied, *made], sort_keys=True)


def read_granted(engine: Engine) -> dict[str, int]:
    """Return how many grants of their own silver and gold tables have, by key."""
    with reading(), engine.connect() as connection:
        return _granted(connection)


def read_past(engine: Engine) -> list[str]:
    """Return the definitions that were ever applied, the newest first."""
    with reading(), engine.connect() as connection:
        return _past(connection)


def _past(connection: Connection) -> list[str]:
    query = select(derived_streams.c.definitions).order_by(derived_streams.c.number.desc())
    return list(dict.fromkeys(connection.execute(query).scalars()))


def _granted(connection: Connection) -> dict[str, int]:
    c = entitlements.c
    query = select(c.game_key, func.count()).where(c.ended_at.is_(None)).group_by(c.game_key)
    return {row.game_key: row[1] for row in connection.execute(query) if parted_table_key(row.game_key) is not None}


def _rule_tables(connection: Connection) -> list[RuleTable]:
    query = select(*(rule_tables.c[name] for name in RuleTable.__slots__)).order_by(rule_tables.c.name)
    return [RuleTable(*row) for row in connection.execute(query)]


def states_in(connection: Connection) -> dict[str, DerivedState]:
    """Return how each derived stream is carried, by its name; those that no driver has carried yet are left out."""
    rows = connection.execute(select(*(derived_states.c[name] for name in DerivedState.__slots__)))
    return {row.name: DerivedState(*row) for row in rows}


def definitions_in(connection: Connection) -> AppliedStreams:
    """Return the definitions in force within a transaction."""
    table = derived_streams
    query = select(table.c.number, table.c.definitions).order_by(table.c.number.desc()).limit(1)
    row = connection.execute(query).first()
    return NONE if row is None else AppliedStreams(*row)
