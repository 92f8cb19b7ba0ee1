"""Registrations: one as a person or registry gives it, one with valid names and definition, and the result of one.

Called by the registry and by whatever plans a registration. Knows onboarding rules, and no schema that is registered.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey, game_key, is_game_name, shown
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import fingerprint, format_of
from pipeline.data.contracts.policies import DEFAULTS, Policies
from pipeline.data.contracts.schemas import Schema
from pipeline.store.onboarding_rules import rules_for


@dataclass(frozen=True, slots=True)
class Registration:
    """A checked registration: it lets a game send a message."""

    game: str
    message: str  # full name
    definition: bytes  # see `pipeline.data.contracts.formats`
    policies: Policies = DEFAULTS
    plan_hash: str | None = None  # of the plan that was shown; None: apply the current plan
    format: str = "protobuf"
    actor: str | None = None  # who registers it; None: nobody, as a simulation does
    continues: str | None = None  # the game's event type that was renamed to this one, as the actor says
    new_type: bool = False  # the actor accepts its event type as a further one of the game
    withdraws: bool = False  # the actor withdraws it: its next rows wait as those of another event type
    undeclares: bool = False  # the actor withdraws it as a declared schema: its type goes by its superset again
    # The column in which the fields of its event type lie from now on; empty: they are columns of the table again.
    nests: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The result of a registration."""

    schema_id: int
    version: int  # counts the game's registrations: 1, 2, …
    new: bool  # False when the game already had this very schema


@dataclass(frozen=True, slots=True)
class CheckedRegistration:
    """A registration with valid names and definition."""

    game: str
    key: GameKey
    format: str
    message: str
    definition: bytes  # canonical
    fingerprint: str
    policies: Policies
    plan_hash: str | None = None
    actor: str | None = None
    registry: str | None = None  # the generation of the registry that it comes from
    unattended: bool = False  # nobody is there to choose: what is refused waits in quarantine for a person
    continues: str | None = None  # see `Registration`
    new_type: bool = False  # see `Registration`
    withdraws: bool = False  # see `Registration`
    undeclares: bool = False  # see `Registration`
    nests: str | None = None  # see `Registration`

    @property
    def schema(self) -> Schema:
        """The schema, which has no id yet."""
        return Schema(0, self.format, self.message, self.definition)


def ready(registering: Iterable[Registration]) -> list[CheckedRegistration]:
    """Check everything that needs no store; equal definitions are checked once.

    Raises:
        Refused: a name no game can have, or a definition no table can hold.
    """
    known: dict[tuple[str, str, bytes], tuple[bytes, str]] = {}
    registrations = []
    for each in registering:
        _check_game(each.game)
        source = (each.format, each.message, each.definition)
        if source not in known:
            definition = format_of(each.format).canonical(each.message, each.definition)
            known[source] = definition, fingerprint(each.format, each.message, definition)
        key = game_key(each.game)
        definition, mark = known[source]
        checked = CheckedRegistration(each.game, key, each.format, each.message, definition, mark, each.policies)
        said = replace(checked, continues=each.continues, new_type=each.new_type, withdraws=each.withdraws)
        said = replace(said, nests=each.nests, undeclares=each.undeclares)
        registrations.append(replace(said, plan_hash=each.plan_hash, actor=each.actor))
    return registrations


def unattended(
    game: str, key: GameKey, schema: Schema, policies: Policies, *, registry: str | None, actor: str | None = None
) -> CheckedRegistration:
    """Return the registration of a checked schema that nobody is there to decide about."""
    mark = fingerprint(schema.format, schema.message, schema.definition)
    given = (schema.format, schema.message, schema.definition, mark)
    return CheckedRegistration(game, key, *given, policies, actor=actor, registry=registry, unattended=True)


def by_rules(connection: Connection, registrations: Sequence[CheckedRegistration]) -> list[CheckedRegistration]:
    """Return registrations with the policies of their games' onboarding rules, where nobody has chosen others.

    A person's choice goes before the rule's, and the rule's before the one of a registry. An event type that a rule
    accepts is a further one of the game.
    """
    rules = rules_for(connection, {checked.key: checked.game for checked in registrations})
    ruled = []
    for checked in registrations:
        rule = rules.get(checked.key)
        own, given = dict(rule.policies) if rule is not None else {}, dict(checked.policies.chosen)
        chosen = {**given, **own} if checked.unattended else {**own, **given}
        made = replace(checked, policies=Policies(tuple(sorted(chosen.items())))) if own else checked
        if checked.unattended and rule is not None and rule.accepts(event_type(checked.message)):
            made = replace(made, new_type=True)
        ruled.append(made)
    return ruled


def _check_game(game: str) -> None:
    try:
        game.encode()
    except UnicodeEncodeError as error:
        raise Refused(f"The game name {shown(game)} is not valid UTF-8 text. Correct its encoding.") from error
    if not is_game_name(game):
        raise Refused(f"{shown(game)} cannot name a game: use 1 to 256 bytes of UTF-8 without NUL.")
