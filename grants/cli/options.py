"""What the commands about access share: how a change is written as options, and what they open."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from grants.applying import proposals as desk
from grants.catalog import Catalog
from grants.planning.entitlements import AccessIntent
from pipeline.base.errors import Refused
from pipeline.base.terminal import say
from pipeline.cli.context import CommandContext
from pipeline.cli.options import SubmitOptions, combine_options, keys_of, submit_and_wait
from pipeline.control.operations.definition import OperationProposal

INTENTS: Final = combine_options(
    click.option(
        "--policy",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Policy file: who may read what. Revokes nothing without --prune.",
    ),
    click.option(
        "--prune", is_flag=True, help="With --policy: revoke what turnout granted and the policy does not name."
    ),
    click.option(
        "--grant",
        "granted",
        multiple=True,
        metavar="GAME",
        help="Game (name or key) to grant to each principal; repeatable.",
    ),
    click.option(
        "--revoke",
        "revoked",
        multiple=True,
        metavar="GAME",
        help="Game (name or key) to revoke from each principal; repeatable.",
    ),
    click.option(
        "--principal",
        "principals",
        multiple=True,
        help="User (e-mail), group or service principal (application id); repeatable.",
    ),
    click.option(
        "--until", metavar="TIME", help="When the grant expires: a day (its end in UTC) or a time with its zone."
    ),
    click.option("--ticket", help="Ticket number, kept with the grant."),
)


class AccessContext(CommandContext):
    """An environment with its catalog, opened for one command."""

    def names(self) -> dict[str, str]:
        """Return all that can be granted: key → name of every game, and of every silver and gold table in force."""
        from grants.derived_tables import inventory

        return {str(key): name for key, name in inventory(self.engine).items()}

    def catalog(self) -> Catalog:
        """Return the catalog's client.

        Raises:
            Refused: the environment does not say where it is.
            CatalogUnavailable: the embedded one was never started.
        """
        import os

        from grants.catalogs.opening import open_catalog

        return open_catalog(self.settings.access, self.paths, os.environ)

    def prepared(self, intents: Sequence[AccessIntent]) -> desk.AccessProposal:
        """Read what intents are about, and plan them."""
        return desk.prepare(self.engine, self.catalog(), self.settings.access, self.paths, intents)

    def submit(self, prepared: desk.AccessProposal, how: SubmitOptions, reason: str) -> NoReturn:
        """Show what is planned, submit it if the rules allow it, and follow it; end with the exit code.

        Raises:
            Refused: the rules speak against it, or as `submit_and_wait`.
            CatalogUnavailable: the catalog cannot be read.
        """
        intent = prepared.to_intent(self.actor, reason)
        if not how.dry_run:
            desk.require_permitted(self.engine, self.settings, self.catalog(), prepared, intent)
        submit_and_wait(self, OperationProposal(intent, desk.lines(prepared)), how)


def intents_from(
    context: AccessContext, policy: Path | None, prune: bool, reason: str, **single: Any
) -> list[AccessIntent]:
    """Return what the options of `INTENTS` ask for.

    Raises:
        Refused: they ask for nothing, or for things that do not go together; or the policy is wrong.
    """
    if policy is not None:
        if any(single[name] for name in ("granted", "revoked", "principals", "until")):
            raise Refused("--policy cannot be combined with --grant, --revoke, --principal or --until.")
        return _of_policy(context, policy, prune, reason)
    if prune:
        raise Refused("--prune needs --policy.")
    if not single["principals"] or not (single["granted"] or single["revoked"]):
        raise Refused("Give --policy FILE, or --grant GAME or --revoke GAME with --principal NAME.")
    return singles(context.names(), **single, reason=reason)


def singles(
    names: Mapping[str, str], granted: Sequence[str], revoked: Sequence[str], principals: Sequence[str],
    until: str | None, ticket: str | None, reason: str,
) -> list[AccessIntent]:  # fmt: skip
    """Return the intents that give and take these games for these principals.

    Raises:
        Refused: a game is not known, or the time cannot be read or is only for what is given.
    """
    from grants.formats.expiry import parse_until

    if until is not None and not granted:
        raise Refused("--until needs --grant: a revoke takes effect at once.")
    end = None if until is None else float(parse_until(until))
    return [
        *(
            AccessIntent(who, key, read=True, until=end, reason=reason, ticket=ticket or "")
            for who in principals
            for key in keys_of(granted, names)
        ),
        *(
            AccessIntent(who, key, read=False, reason=reason, ticket=ticket or "")
            for who in principals
            for key in keys_of(revoked, names)
        ),
    ]


def _of_policy(context: AccessContext, file: Path, prune: bool, reason: str) -> list[AccessIntent]:
    from grants.applying import ledger
    from grants.derived_tables import in_force
    from grants.formats import policy
    from grants.model import folded
    from pipeline.store.games import known_games
    from pipeline.store.processes.leases import store_time

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The policy {file} cannot be read: {error}.") from error
    games, now = known_games(context.engine), store_time(context.engine)
    tables = {key: policy.KnownTable(each.name, each.game_key) for key, each in in_force(context.engine).items()}
    parsed = policy.parse(text, games, tables)
    for warning in (*parsed.warnings, *policy.check_until(parsed, now)):
        say(f"Note: {warning}", err=True)
    cells = [each for each in policy.cells(parsed, games, tables) if each.until is None or each.until > now]
    unmade = _not_yet_made(context, {each.key for each in cells} & tables.keys())
    for key in sorted(unmade):
        say(f"Note: {key} is not yet made, so it is left out: apply the policy again when it is.", err=True)
    intents = [
        AccessIntent(
            each.principal,
            each.key,
            read=True,
            until=each.until,
            reason=each.reason,
            ticket=each.ticket or "",
            adopt=True,
        )
        for each in cells
        if each.key not in unmade
    ]
    if prune:
        named = {(folded(each.principal), each.key) for each in cells}
        gone = {each.cell: each for each in ledger.managed(context.engine).entitlements if each.cell not in named}
        why = reason or "the policy does not name it"
        intents += [AccessIntent(each.principal, each.key, read=False, reason=why) for _, each in sorted(gone.items())]
    return intents


def _not_yet_made(context: AccessContext, keys: AbstractSet[str]) -> AbstractSet[str]:
    """Return which of these silver and gold tables the catalog does not have."""
    return keys - context.catalog().tables(desk.schema_of(context.settings.access)).keys() if keys else keys
