"""The commands that act on schemas: `turnout schemas plan | register | requests | approve | reject | trust | ...`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.base.texts import in_utc
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED, combine_options, required_reason

if TYPE_CHECKING:
    from pipeline.control.registering.requests import SchemaRequest
    from pipeline.data.contracts.registrations import Registration

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_SCHEMA = combine_options(
    click.option("--game", required=True, help="The game's exact name."),
    click.option("--message", required=True, help="Full name of the payload's message, or a JSON Schema's title."),
    click.option(
        "--policy", "policies", multiple=True, help="Policy of a change, such as incompatible=side-column; repeatable."
    ),
    click.option(
        "--continues", metavar="OLD", help="Confirm that the game's event type OLD was renamed to this message's."
    ),
    click.option("--new-type", is_flag=True, help="Accept the message as a further event type of the game."),
    click.option(
        "--format", "format_name", help="Format of the file: protobuf, avro or json. Default: by .avsc and .json."
    ),
    click.argument("definition", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
)
"""Says which schema a game is to have, and what may change for it."""


@click.command("plan")
@_SCHEMA
@_JSON
def plan_schema(env_dir: Path, as_json: bool, **schema: Any) -> None:
    """Show what `turnout schemas register` would do with a schema, and change nothing.

    Prints for each changed field the policy, the column and its type, and the effect on old and new rows, with `!`
    before breaking changes; on the last line the plan's hash. Exit code 1 if turnout would refuse a change. See
    docs/schemas.md.
    """
    from pipeline.control.registering.proposals import propose

    context = CommandContext(env_dir)
    proposal = propose(context.settings, context.engine, context.paths.bronze, _registration(**schema))
    plan = proposal.plan
    if as_json:
        say_json({
            "game": plan.game, "message": plan.message, "format": proposal.registration.format,
            "version": plan.version, "new": plan.new, "plan": plan.hash, "possible": proposal.possible,
            "needs_approval": proposal.needs_approval, "quarantined": plan.placement.quarantined,
            "steps": [{**asdict(each), "breaking": each.breaks} for each in plan.steps],
            "with_it": [
                {"message": one.message, "version": one.version, "quarantined": one.placement.quarantined,
                 "steps": [{**asdict(each), "breaking": each.breaks} for each in one.steps]}
                for one in plan.with_it
            ],
        })  # fmt: skip
    else:
        _say_all(proposal.lines)
    sys.exit(0 if proposal.possible else 1)


@click.command("register")
@_SCHEMA
@click.option("--plan-hash", help="Register only if the plan is still the one with this hash.")
@click.option("--reason", help="Reason, kept in the audit log; required where a second person must approve.")
@_JSON
def register_schema(env_dir: Path, plan_hash: str | None, reason: str | None, as_json: bool, **schema: Any) -> None:
    """Register the next schema version of a game: a FileDescriptorSet (protoc --include_imports -o), .avsc or .json.

    Does exactly what `turnout schemas plan` shows, and prints the schema id for the wrappers. Registers nothing if a
    policy refuses a change, and names the field; or if the message is of another event type than the game's, unless
    --continues says that it is the same type under a new name. With the setting `schemas.second_person` a breaking
    change waits for another person; exit code 1 then. Running queries use a new version without a restart. A name
    becomes a game with its first schema.
    """
    from pipeline.base.names import game_key
    from pipeline.control.registering.proposals import describe, register
    from pipeline.control.registering.requests import SchemaRequest
    from pipeline.platforms.local.catalog_checks import require_writable
    from pipeline.store.games import known_games

    context = CommandContext(env_dir)
    registration = _registration(**schema, plan_hash=plan_hash)
    if (key := game_key(registration.game)) not in known_games(context.engine):
        for note in require_writable(context.settings, context.paths, [key]):
            say(f"Note: {note}", err=True)
    done = register(context.settings, context.engine, context.paths.bronze, registration, context.actor, reason or "")
    if isinstance(done, SchemaRequest):
        lines = describe(context.settings, context.engine, done)
        if as_json:
            say_json({"outcome": "requested", **_as_dict(done), "lines": lines})
        else:
            _say_all(lines)
        sys.exit(1)
    if as_json:
        outcome = "registered" if done.new else "known"
        say_json({
            "outcome": outcome, "game": registration.game, "version": done.version, "schema_id": done.schema_id
        })  # fmt: skip
    else:
        result = "registered" if done.new else "was registered already"
        say(f"schema id {done.schema_id}: version {done.version} of {registration.game!r} {result}")


@click.command("requests")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most requests to print.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def schema_requests(env_dir: Path, limit: int, as_json: bool) -> None:
    """List registrations that wait for a second person, oldest first, then decided ones, newest first."""
    from pipeline.control.registering.requests import list_requests

    listed = list_requests(CommandContext(env_dir).engine, limit)
    if as_json:
        say_json([_as_dict(each) for each in listed])
    else:
        _say_all(map(_line, listed))


@click.command("approve")
@click.argument("request")
@click.option("--reason", help="Reason, kept in the audit log.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and approve nothing.")
def approve_schema(env_dir: Path, request: str, reason: str | None, dry_run: bool) -> None:
    """Approve another person's REQUEST (its id or the start of it): register exactly the plan they were shown.

    Prints that plan. Refuses once it has changed, as when another version was registered: reject the request, and have
    the schema registered again. Exit code 1 then, also with --dry-run.
    """
    from pipeline.control.registering.proposals import approve, review
    from pipeline.control.registering.requests import request as find

    context = CommandContext(env_dir)
    wanted = find(context.engine, request)
    looked = review(context.engine, context.paths.bronze, wanted)
    _say_all(looked.lines)
    if dry_run:
        _say_all([looked.stale] if looked.stale else [])
        sys.exit(1 if looked.stale else 0)
    done = approve(context.settings, context.engine, context.paths.bronze, wanted, context.actor, reason or "")
    say(f"schema id {done.schema_id}: version {done.version} of {wanted.game!r} registered")


@click.command("reject")
@click.argument("request")
@required_reason("Reason, kept in the audit log and shown to the requester.")
def reject_schema(env_dir: Path, request: str, reason: str) -> None:
    """Reject another person's REQUEST, or withdraw your own. Nothing is registered."""
    from pipeline.control.registering.proposals import reject
    from pipeline.control.registering.requests import request as find

    context = CommandContext(env_dir)
    say(_line(reject(context.settings, context.engine, find(context.engine, request), context.actor, reason)))


@click.command("trust")
@click.argument("registry")
@click.option("--reason", help="Your finding about the registry; required, kept in the audit log.")
@click.option("--dry-run", is_flag=True, help="Show what turnout saw and would do, and change nothing.")
def trust_registry(env_dir: Path, registry: str, reason: str | None, dry_run: bool) -> None:
    """Trust REGISTRY again, which gave a known id another schema; its name, with its generation above 1: NAME.2.

    Prints the id with both fingerprints, and what happens to rows of that id. Schemas that turnout keeps stay as they
    are. Where the registry was rebuilt and its ids began again, raise its `generation` instead. See docs/registries.md.
    """
    from pipeline.control.registering.trust import propose, trust

    context = CommandContext(env_dir)
    proposal = propose(context.engine, registry)
    _say_all(proposal.lines)
    if not dry_run:
        say(trust(context.settings, context.engine, proposal, context.actor, reason or ""))


@click.command("give-up")
@click.argument("registry")
@click.option("--reason", help="Why it will never answer; required, kept in the audit log.")
@click.option("--dry-run", is_flag=True, help="Show what games wait for, and change nothing.")
def give_up_registry(env_dir: Path, registry: str, reason: str | None, dry_run: bool) -> None:
    """Give up the schemas that games wait for from REGISTRY; its name, with its generation above 1: NAME.2.

    For a registry that will never answer, such as an earlier generation. Rows of these schemas go to quarantine, and
    their games go on. See docs/registries.md.
    """
    from pipeline.control.registering.giving_up import give_up, propose

    context = CommandContext(env_dir)
    proposal = propose(context.engine, registry)
    _say_all(proposal.lines)
    if not dry_run:
        say(give_up(context.settings, context.engine, proposal, context.actor, reason or ""))


@click.command("accept-loss")
@click.argument("game")
@click.option("--reason", help="Why nobody can register them again; required, kept in the audit log.")
@click.option("--dry-run", is_flag=True, help="Show which schemas are lost, and change nothing.")
def accept_lost_schemas(env_dir: Path, game: str, reason: str | None, dry_run: bool) -> None:
    """Accept that the control store has lost schemas of GAME (its exact name) for good.

    For a store that was restored from an older copy, where nobody has their definitions. Further schemas of the game
    can be registered then. See docs/repair.md.
    """
    from pipeline.control.registering.lost_schemas import accept_loss, propose

    context = CommandContext(env_dir)
    proposal = propose(context.engine, context.paths.bronze, game)
    _say_all(proposal.lines)
    if not dry_run:
        say(accept_loss(context.settings, context.engine, context.paths.bronze, proposal, context.actor, reason or ""))


def _registration(
    *,
    game: str,
    message: str,
    policies: tuple[str, ...],
    format_name: str | None,
    definition: Path,
    continues: str | None,
    new_type: bool,
    plan_hash: str | None = None,
) -> "Registration":
    from pipeline.data.contracts.formats.supported import BY_SUFFIX
    from pipeline.data.contracts.policies import parse_policies
    from pipeline.data.contracts.registrations import Registration

    kind = format_name or BY_SUFFIX.get(definition.suffix, "protobuf")
    content = definition.read_bytes()
    given = Registration(game, message, content, parse_policies(policies), plan_hash, kind)
    return replace(given, continues=continues, new_type=new_type)


def _say_all(lines: Iterable[str]) -> None:
    for each in lines:
        say_lines(each)


def _line(request: "SchemaRequest") -> str:
    decided = f" by {request.decided_by}: {request.decision_reason or 'no reason'}" if request.decided_by else ""
    return plain(
        f"{request.request_id[:8]}  {in_utc(request.requested_at)}  {request.state}{decided}  {request.requester}: "
        f"{request.message} for {request.game!r}, plan {request.plan_hash}; {request.reason}"
    )


def _as_dict(request: "SchemaRequest") -> dict[str, Any]:
    """Return a request for scripts, without the definition."""
    return {
        **{name: value for name, value in asdict(request).items() if name != "definition"},
        "policies": [f"{kind}={policy}" for kind, policy in request.policies.chosen],
    }
