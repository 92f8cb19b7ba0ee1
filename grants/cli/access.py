"""The commands `turnout grants …`, but those of drift and of requests."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from grants.applying import proposals as desk
from grants.cli.options import INTENTS, AccessContext, intents_from
from grants.model import folded
from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.options import SubmitOptions, keys_of, submitting

if TYPE_CHECKING:
    from grants.formats.exchange import ReadRow

_FORMATS: Final = ("yaml", "sql", "terraform")


@click.command("matrix")
@click.option("--game", "games", multiple=True, help="Only this game (name or key); repeatable.")
@click.option("--principal", "principals", multiple=True, help="Only this principal; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Also print principals who do not read.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def matrix(env_dir: Path, games: tuple[str, ...], principals: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """Show who reads which game, as the controller last read the catalog.

    Prints the principals who read, those who could grant it to themselves, and those of whom it is unknown; and the
    age of the reading.
    """
    from grants.observing import snapshot
    from grants.observing.matrix import by_game
    from grants.observing.matrix import matrix as matrix_of
    from grants.observing.resolver import Resolver

    context = AccessContext(env_dir)
    names = context.names()
    known = snapshot.read(context.engine)
    if known.observed is None:
        why = known.problem or "Start `turnout controller run`."
        raise Refused(f"The catalog was never read. {why}")
    resolver = Resolver(known.observed)
    keys = keys_of(games, names) if games else [key for key in by_game(known.observed) if key in names]
    cells = matrix_of(resolver, keys, principals or None)
    age = snapshot.age(context.engine, known.observed)
    if as_json:
        columns = {who: dict(zip(cells.keys, column, strict=True)) for who, column in cells.columns.items()}
        notes = known.observed.notes
        say_json({"age_seconds": age, "problem": known.problem, "notes": notes, "principals": columns})
        return
    for who, column in cells.columns.items():
        for key, state in zip(cells.keys, column, strict=True):
            if everything or state != "no":
                say(f"{who:<32} {key:<54} {state}")
    counts = ", ".join(f"{number} {state}" for state, number in sorted(cells.counts.items()))
    say(f"{len(cells.keys)} games, {len(cells.columns)} principals: {counts or 'nothing'}. Read {age:.0f} s ago.")
    for note in known.observed.notes:
        say(f"Note: {note}", err=True)
    if known.problem:
        say(f"The newest read failed: {known.problem}", err=True)


@click.command("why")
@click.argument("game")
@click.argument("principal")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def why(env_dir: Path, game: str, principal: str, as_json: bool) -> None:
    """Show whether PRINCIPAL reads GAME (name or key), by which grants, and what is missing; reads the catalog now."""
    from grants.applying import own_tables
    from grants.observing import snapshot
    from grants.observing.resolver import Resolver

    context = AccessContext(env_dir)
    (key,) = keys_of((game,), context.names())
    places = own_tables.places(context.engine, context.paths)
    schema = desk.schema_of(context.settings.access)
    observed = snapshot.observe(context.catalog(), schema, time.time(), places, [key])
    verdict = Resolver(observed).verdict(principal, key)
    if as_json:
        needs = [
            {"privilege": each.privilege, "met": each.met, "ways": [way.words for way in each.ways]}
            for each in verdict.needs
        ]
        answer = {"principal": verdict.principal, "game_key": key, "reads": verdict.reads, "needs": needs}
        more = {"could_grant_itself": verdict.could_grant_itself, "badges": verdict.badges}
        say_json({**answer, **more, "sentence": verdict.sentence})
        return
    say(verdict.sentence)


@click.command("plan")
@INTENTS
@click.option("--reason", help="Reason, kept in the audit log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(env_dir: Path, reason: str | None, as_json: bool, **intents: Any) -> None:
    """Show the changes of access, for whom, and their statements; `apply` with the same options applies them.

    The last line is the plan's hash for `turnout grants apply --plan`.
    """
    context = AccessContext(env_dir)
    prepared = context.prepared(intents_from(context, reason=reason or "", **intents))
    if as_json:
        say_json(_as_dict(prepared))
        return
    for each in desk.lines(prepared):
        say(each)
    say(f"plan {prepared.plan.fingerprint}")


@click.command("apply")
@INTENTS
@click.option("--plan", "fingerprint", help="Apply only if the plan still has this hash.")
@click.option(
    "--request",
    "as_request",
    is_flag=True,
    help="Request it from an access admin instead. The same open request is not made twice.",
)
@submitting
def apply(env_dir: Path, how: SubmitOptions, fingerprint: str | None, as_request: bool, **intents: Any) -> None:
    """Grant and revoke access: plan again, check, apply, observe in the catalog, probe.

    The controller plans again, and applies the plan only if it is still the one shown. It applies change by change,
    waits until the catalog shows it, and reads as those who gained or lost access. Needs `--reason`. Exit code 1 if a
    part failed.
    """
    from grants.applying.requests import describe, submit

    context = AccessContext(env_dir)
    prepared = context.prepared(intents_from(context, reason=how.reason, **intents))
    if fingerprint is not None and fingerprint != prepared.plan.fingerprint:
        raise Refused(f"The plan has changed and is {prepared.plan.fingerprint} now. Review it again.")
    if as_request and not how.dry_run:
        for each in desk.lines(prepared):
            say(each, err=how.as_json)
        request = submit(context.engine, context.actor, [asdict(each) for each in prepared.intents], how.reason)
        say(describe(request), err=how.as_json)
        if how.as_json:
            say_json(asdict(request))
        return
    context.submit(prepared, how, how.reason)


@click.command("undo")
@click.argument("operation")
@submitting
def undo(env_dir: Path, operation: str, how: SubmitOptions) -> None:
    """Revert what OPERATION did about access, and only that, unless something newer depends on it."""
    from pipeline.store.operations import operation as find

    context = AccessContext(env_dir)
    done = find(context.engine, operation)
    prepared = desk.prepare_undo(context.engine, context.catalog(), context.settings.access, context.paths, done)
    context.submit(prepared, how, how.reason)


@click.command("expire")
@submitting
def expire(env_dir: Path, how: SubmitOptions) -> None:
    """Revoke expired access now; a running controller does this by itself."""
    from grants.applying import ledger
    from grants.planning.entitlements import expired
    from pipeline.store.processes.leases import store_time

    context = AccessContext(env_dir)
    entitlements = ledger.managed(context.engine).entitlements
    context.submit(context.prepared(expired(entitlements, store_time(context.engine))), how, how.reason)


@click.command("export")
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="yaml", show_default=True, help="Format of the file."
)
def export(env_dir: Path, form: Any) -> None:
    """Print what turnout granted and what is in force, as a policy, as SQL or as Terraform."""
    from grants.applying import ledger
    from grants.formats.exchange import ReadRow, render_rows
    from grants.observing import snapshot

    context = AccessContext(env_dir)
    names, held = context.names(), ledger.held(context.engine)
    rows = [
        ReadRow(
            each.principal, None, each.game_key, names.get(each.game_key, each.game_key),
            None if each.expires_at is None else int(each.expires_at),
            each.reason or f"operation {each.operation_id[:8]}", each.ticket or None,
        )
        for each in held
    ]  # fmt: skip
    if form != "yaml":
        rows += _followers(context, rows)
    schema = desk.schema_of(context.settings.access)
    direct = None
    if form == "terraform":
        direct = snapshot.observe(context.catalog(), schema, time.time(), {}, {each.key for each in rows}).direct
    say_lines(render_rows(form, rows, schema, direct).removesuffix("\n"))


def _followers(context: AccessContext, rows: "list[ReadRow]") -> "list[ReadRow]":
    """Return what turnout granted on silver and gold tables with their games, by the games' terms."""
    from grants.applying import ledger
    from grants.derived_tables import in_force

    own = {(folded(each.principal), each.key) for each in rows}
    given = {(each.principal, each.securable.path[-1]) for each in ledger.managed(context.engine).given} - own
    tables = in_force(context.engine).values()
    return [
        replace(row, key=table.key, game=table.label)
        for row in rows
        for table in tables
        if table.game_key == row.key and (folded(row.principal), table.key) in given
    ]


def _as_dict(prepared: desk.AccessProposal) -> dict[str, Any]:
    planned = prepared.plan
    return {
        "plan": planned.fingerprint,
        "effects": [each._asdict() for each in planned.effects],
        "unmoved": [each.sentence for each in planned.unmoved],
        "warnings": planned.warnings,
        "statements": [each for change in planned.changes for each in desk.statements(change)],
    }
