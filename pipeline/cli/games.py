"""The commands `turnout games …`: which names are games, and which wait to become one."""

from pathlib import Path
from typing import Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext
from pipeline.cli.options import LISTED, Finite, SubmitOptions, required_reason, submit_and_wait, submitting
from pipeline.store.database.states import PRIORITIES


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_games(env_dir: Path, as_json: bool) -> None:
    """List every game: since when, by what right, its group, and the names people may mistake it for.

    The right is `schema`, `name`, `prefix` or `approval`. Names are quoted, with escapes for invisible characters. A
    game of which nothing has arrived says so; with a schema it is listed before ingest has looked at it.
    """
    from pipeline.data.ingest import pending

    known = pending.games(CommandContext(env_dir).engine)
    if as_json:
        say_json(pending.games_for_json(known))
    else:
        say_lines(pending.render_games(known))


@click.command("pending")
@click.option("--limit", type=LISTED, default=100, show_default=True, help="Most names to print.")
@click.option("--samples", is_flag=True, help="Also read the schema ids of their rows from quarantine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def pending_games(env_dir: Path, limit: int, samples: bool, as_json: bool) -> None:
    """List proposed games, then unknown names with the most rows first, each with the reason it is not a game.

    With each its onboarding rule, or the one that it nearly matches, and the group that it would get now. Also prints
    the rejected names and an estimate of all unknown names. A range of rows means that the name was crowded out of the
    list for a while. Ingest updates the list about every ten seconds. JSON: `names`, `candidates`, `framings`,
    `distinct`, `rows` and `refused`.
    """
    from pipeline.control.onboarding import candidates as found
    from pipeline.data.ingest import pending

    context = CommandContext(env_dir)
    known = found.candidates(context.settings, context.engine)
    shown = known.names[:limit]
    if samples:
        shown = found.with_samples(context.paths, shown)
    if as_json:
        listed = [found.as_dict(each) for each in shown]
        more = {"candidates": listed, "framings": known.framings}
        say_json({**pending.pending_for_json(known.seen, limit), **more})
        return
    for each in shown:
        if each.proposal is not None or samples:
            say_lines("\n".join(map(plain, found.lines(each))))
    say_lines(pending.render_pending(known.seen, limit))


@click.command("propose")
@click.argument("name")
@click.option("--events-per-second", type=Finite(min=0), help="Expected load.")
@click.option("--group", help="Cluster group. Default: its rule's, or placement chooses.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Default: its rule's.")
@click.option("--reader", "readers", multiple=True, help="Principal who is to read it; repeatable.")
@click.option("--schema", "definition", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Its first schema: a FileDescriptorSet, .avsc or .json.")  # fmt: skip
@click.option("--message", help="Full name of the message of --schema, or a JSON Schema's title.")
@required_reason("Reason, for the person who approves and for the audit log.")
def propose_game(env_dir: Path, name: str, definition: Path | None, message: str | None, **wishes: Any) -> None:
    """Propose NAME (exact) as a game before it sends anything; `turnout games approve` takes these values.

    Replaces an earlier proposal of NAME. Nothing else changes until it is approved.
    """
    from pipeline.base.names import game_key
    from pipeline.control.onboarding import candidates as found
    from pipeline.data.contracts.formats.supported import BY_SUFFIX
    from pipeline.store.game_proposals import GameProposal

    if (definition is None) != (message is None):
        raise Refused("--schema and --message belong together.")
    context = CommandContext(env_dir)
    if definition is not None:
        wishes |= {"definition": definition.read_bytes(), "message": message,
                   "format": BY_SUFFIX.get(definition.suffix, "protobuf")}  # fmt: skip
    proposal = GameProposal(game_key(name), name, context.actor, **wishes)
    proposed = found.propose(context.settings, context.engine, context.paths.bronze, proposal)
    say_lines("\n".join(map(plain, found.lines(proposed))))


@click.command("approve")
@click.argument("name")
@click.option("--group", help="Cluster group of the game. Default: its proposal's or rule's, or placement chooses.")
@click.option("--priority", type=click.Choice(PRIORITIES), help="Default: its proposal's or rule's.")
@click.option("--reader", "readers", multiple=True, help="Principal who is to read it, besides its rule's; repeatable.")
@submitting
def approve_game(
    env_dir: Path, name: str, group: str | None, priority: Any, readers: tuple[str, ...], how: SubmitOptions
) -> None:
    """Make NAME (exact) a game: onboard it, register its proposed schema, place it, replay what came before.

    NAME need not have arrived yet. One operation, which ends when the game's stream is live; needs a running
    controller. Its undo retires the game and revokes what it granted; nothing is deleted. Reverts a rejection of NAME.
    Readers get access by an operation of their own once the table is in the catalog; --reader needs the role
    access_admin. Refused where the catalog of a workspace has another table of the game's key.
    """
    from pipeline.base.names import game_key
    from pipeline.control.operations.onboarding import Wishes, approve
    from pipeline.platforms.local.catalog_checks import require_writable

    context = CommandContext(env_dir)
    for note in require_writable(context.settings, context.paths, [game_key(name)]):
        say(f"Note: {note}", err=True)
    wishes = Wishes(group, priority, readers)
    submit_and_wait(context, approve(context.settings, context.engine, name, wishes, context.actor, how.reason), how)


@click.command("rename")
@click.argument("old")
@click.argument("new")
@submitting
def rename_game(env_dir: Path, old: str, new: str, how: SubmitOptions) -> None:
    """Make NEW (exact), which the studio of OLD (name or key) sends from now on, a game with what OLD has.

    One operation, as `games approve` is: NEW gets OLD's group, priority, the schemas whose rows land, its output
    contracts, derived tables as OLD has, and the readers that OLD got at its onboarding; rows of NEW that came before
    land. NEW has a table of its own. OLD keeps its table and takes what it still sends: retire it later. Its undo
    retires NEW. Readers need the role access_admin.
    """
    from pipeline.base.names import game_key
    from pipeline.control.operations.onboarding import rename
    from pipeline.platforms.local.catalog_checks import require_writable

    context = CommandContext(env_dir)
    for note in require_writable(context.settings, context.paths, [game_key(new)]):
        say(f"Note: {note}", err=True)
    submit_and_wait(context, rename(context.settings, context.engine, old, new, context.actor, how.reason), how)


@click.command("reject")
@click.option("--reason", help="Reason, kept in the audit log.")
@click.argument("name")
def reject_game(env_dir: Path, reason: str | None, name: str) -> None:
    """Keep NAME (exact) from becoming a game until its approval, and remove it and its proposal from the list.

    A rejection wins over schemas and rules, but does not touch an existing game.
    """
    from pipeline.control.onboarding.candidates import reject

    context = CommandContext(env_dir)
    reject(context.settings, context.engine, name, context.actor, reason)
    say(f"{name!r} is rejected")
