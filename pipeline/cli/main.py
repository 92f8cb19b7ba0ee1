"""The command line: all commands with where they are. Exit codes: 0 fine, 1 the check or the work failed, 2 wrong use.

Starting it imports no command: `LazyCommand` does when one runs. Packages above this one add theirs by an entry point.
"""

import io
import logging
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from pipeline.cli.environments import before, list_without_verb
from pipeline.cli.lazy import LazyCommand, OldName, group
from pipeline.errors import Refused, Transient, first_line
from pipeline.extensions import COMMANDS, registered
from pipeline.names import is_utf8
from pipeline.terminal import PlainFormatter, escape_what_cannot_be_encoded, output_failed, say, say_lines


def main() -> None:
    """Run a command; what it refuses is one sentence on stderr and exit code 2, a store that fails one and 1."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    for noisy in ("py4j", "sqlalchemy.engine", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    escape_what_cannot_be_encoded()
    try:
        _require_text(sys.argv[1:])
        code = _run()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say_lines(shown.getvalue().removesuffix("\n"), err=True)  # it quotes arguments as they are
        sys.exit(error.exit_code)
    except click.Abort:
        say("Aborted!", err=True)
        sys.exit(1)
    except (Refused, Transient) as error:
        _end(str(error), 2 if isinstance(error, Refused) else 1)
    except _store_errors() as error:
        reason = first_line(error)
        _end(f"The control store does not do its work: {reason}. Try again; if it stays so, check the store.", 1)
    sys.exit(code if isinstance(code, int) else 0)  # click's own: 0 for help, what it was ended with


def _run() -> object:
    """Run a command; return what click returns: an exit code, where it is a number."""
    try:
        return cli(prog_name="turnout", standalone_mode=False)
    except OSError as error:  # help and version are printed by click itself
        if (failed := output_failed(error)) is not None:
            raise failed from error
        raise


def _end(text: str, code: int) -> NoReturn:
    text = text.replace("\n", "\n  ")  # no line of a text that it quotes looks like one of ours
    say_lines(f"turnout: {text}", err=True)
    sys.exit(code)


def _require_text(arguments: Sequence[str]) -> None:
    for each in arguments:
        if not is_utf8(each):
            raise Refused(f"{each!a} is no UTF-8 text. Correct it, or set LC_ALL to a locale of UTF-8.")


def _store_errors() -> tuple[type[Exception], ...]:
    """Return what SQLAlchemy raises, which most commands do not import."""
    return (sys.modules["sqlalchemy.exc"].SQLAlchemyError,) if "sqlalchemy.exc" in sys.modules else ()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="turnout", prog_name="turnout", message="%(prog)s %(version)s")
@before
def cli() -> None:
    """Split one topic's events into one Delta table per game, exactly once."""


_COMMANDS: Final = (
    LazyCommand("doctor", "pipeline.cli.doctor:doctor", "Print what is there, what is missing and what to do."),
    LazyCommand(
        "simulate",
        "pipeline.cli.simulation:simulate",
        "Write simulated events to the landing table or the Kafka topic.",
    ),
    group(
        "schemas",
        "The schemas games may use.",
        LazyCommand(
            "plan",
            "pipeline.cli.schemas:plan_schema",
            "Show what `schemas register` would do with a schema, and change nothing.",
        ),
        LazyCommand(
            "register",
            "pipeline.cli.schemas:register_schema",
            "Register the next schema version of a game from a FileDescriptorSet (protoc --include_imports -o FILE).",
        ),
        LazyCommand("list", "pipeline.cli.schemas:list_schemas", "List every game's schema versions with their ids."),
    ),
    group(
        "games",
        "The games, and the names that wait to become one.",
        LazyCommand(
            "list",
            "pipeline.cli.games:list_games",
            "List every game: since when, by what right, in which group, and what it may be taken for.",
        ),
        LazyCommand(
            "pending",
            "pipeline.cli.games:pending_games",
            "List the names that came and are no games, the busiest first, each with the reason.",
        ),
        LazyCommand(
            "approve",
            "pipeline.cli.games:approve_game",
            "Make a game of NAME (exact); its rows are routed from ingest's next micro-batch on.",
        ),
        LazyCommand(
            "reject", "pipeline.cli.games:reject_game", "Keep NAME (exact) from becoming a game until it is approved."
        ),
        LazyCommand(
            "priority",
            "pipeline.cli.placement:priority",
            "Give GAMES (names or keys) a priority, by which scarce capacity is shared; nobody moves by it.",
        ),
        LazyCommand(
            "retire",
            "pipeline.cli.repairs:retire",
            "Take GAMES (names or keys) from their groups until they are restored; their rows stay in bronze.",
        ),
        LazyCommand(
            "restore",
            "pipeline.cli.repairs:restore",
            "Give retired GAMES a group again; they catch up from their tables' cursors.",
        ),
        OldName("refuse", "pipeline.cli.games:reject_game", "games reject"),
    ),
    group(
        "ingest",
        "The way from the source into bronze.",
        LazyCommand("run", "pipeline.cli.ingest:run_ingest", "Run the ingest driver."),
        LazyCommand(
            "adopt",
            "pipeline.cli.ingest:adopt_source",
            "Let ingest go on from what bronze has: its checkpoint is gone or damaged, or the source lost something.",
        ),
        LazyCommand(
            "gaps",
            "pipeline.cli.ingest:accepted_gaps",
            "List the gaps that were accepted: what a source had lost before it was read.",
        ),
    ),
    group(
        "stream",
        "What is decided about single games' streams; a driver acts at its next pass.",
        LazyCommand(
            "own-query",
            "pipeline.cli.steering:own_query",
            "Give GAME a streaming query of its own, or take it back into its group's pass.",
        ),
        LazyCommand(
            "accept-gap",
            "pipeline.cli.quarantine:accept_gap",
            "Let GAME go on over rows that bronze has lost before its stream had read them.",
        ),
    ),
    LazyCommand(
        "dashboard",
        "pipeline.cli.simulation:dashboard",
        "Run the dashboard on this machine, for you alone: only the printed URL opens it.",
    ),
    LazyCommand(
        "verify",
        "pipeline.cli.tables:verify",
        "Prove that every bronze row is in its game's table or in quarantine, once; with --values, also unchanged.",
    ),
    LazyCommand(
        "maintain",
        "pipeline.cli.tables:maintain",
        "Merge small files, cut logs and delete old files of all tables, again and again; the controller runs it, too.",
    ),
    LazyCommand("paths", "pipeline.cli.tables:paths", "Print where the tables of an environment are."),
    LazyCommand(
        "demo",
        "pipeline.cli.simulation:demo",
        "Run everything on this machine: simulator, ingest, two groups, dashboard and, if installed, Prometheus.",
    ),
    LazyCommand(
        "status",
        "pipeline.cli.status:status",
        "Print how drivers, games and operations are; exit code 1 where a person should look.",
    ),
    group(
        "quarantine",
        "The rows that were refused, and their way back.",
        LazyCommand(
            "list", "pipeline.cli.quarantine:list_quarantine", "Count refused rows by game and reason, the most first."
        ),
        LazyCommand(
            "show", "pipeline.cli.quarantine:show_quarantine", "Show refused rows with their bytes, the newest first."
        ),
    ),
    group(
        "controller",
        "The process that carries out operations.",
        LazyCommand(
            "run",
            "pipeline.cli.steering:run_controller",
            "Run the controller until it is stopped: it carries out operations and runs the groups with a backend.",
        ),
    ),
    group(
        "groups",
        "Cluster groups: what is wanted of them, and their drivers.",
        LazyCommand(
            "list",
            "pipeline.cli.groups:list_groups",
            "List every group: what is wanted, who drives it, its number of games, its deaths in the last hour.",
        ),
        LazyCommand(
            "create",
            "pipeline.cli.groups:create_group",
            "Make group NAME known; games that wait for a group may go there.",
        ),
        LazyCommand(
            "set",
            "pipeline.cli.groups:set_group",
            "Change what is wanted of group NAME; a new Spark master counts from its driver's next start.",
        ),
        LazyCommand(
            "remove",
            "pipeline.cli.groups:remove_group",
            "Forget group NAME, which is drained or stopped, carries no games and has no process.",
        ),
        LazyCommand("start", "pipeline.cli.groups:start", "Let the controller run the drivers of GROUPS again."),
        LazyCommand(
            "stop", "pipeline.cli.groups:stop", "End the drivers of GROUPS and leave their games standing still."
        ),
        LazyCommand("restart", "pipeline.cli.groups:restart", "Restart the drivers of GROUPS."),
        LazyCommand(
            "propose",
            "pipeline.cli.placement:propose",
            "Show the moves that most reduce the highest load, after those of games that cannot stay where they are.",
        ),
        LazyCommand(
            "drain",
            "pipeline.cli.placement:drain",
            "Move all games of GROUP to groups that have room for them, and let none land there again.",
        ),
        LazyCommand(
            "run", "pipeline.cli.groups:run_group", "Run the driver of cluster group NAME in this very process."
        ),
    ),
    LazyCommand(
        "move",
        "pipeline.cli.steering:move",
        "Move GAMES (names or keys) to another cluster group while everything runs.",
    ),
    LazyCommand(
        "pause",
        "pipeline.cli.steering:pause",
        "Let nothing more into the tables of GAMES (names or keys) until they are resumed.",
    ),
    LazyCommand(
        "resume",
        "pipeline.cli.steering:resume",
        "Let paused streams of GAMES go on; they catch up from their tables' cursors.",
    ),
    group(
        "repair",
        "Repairs of single games, ordered by how much they touch.",
        LazyCommand(
            "actions",
            "pipeline.cli.repairs:actions",
            "Tell what can be done for GAME (its exact name or its key) now, and why not, the gentlest first.",
        ),
        LazyCommand(
            "retry",
            "pipeline.cli.repairs:retry",
            "Let streams of GAMES that were parked, or wait after a failure, run again at once.",
        ),
        LazyCommand(
            "replay",
            "pipeline.cli.repairs:replay",
            "Decode refused rows with today's schemas and put what decodes into its game's table, exactly once.",
        ),
        LazyCommand(
            "dedupe",
            "pipeline.cli.repairs:dedupe",
            "Remove second copies of rows from the tables of GAMES (names or keys), in one commit each.",
        ),
        LazyCommand(
            "rebuild",
            "pipeline.cli.repairs:rebuild",
            "Rebuild the tables of GAMES (names or keys) from bronze, each in one atomic switch.",
        ),
        OldName("options", "pipeline.cli.repairs:actions", "repair actions"),
        OldName("retire", "pipeline.cli.repairs:retire", "games retire"),
        OldName("restore", "pipeline.cli.repairs:restore", "games restore"),
    ),
    group(
        "ops",
        "Operations: what was requested, and its progress.",
        LazyCommand(
            "list",
            "pipeline.cli.steering:list_operations",
            "List operations: first those that need a person, then those that run, then the newest.",
        ),
        LazyCommand(
            "show",
            "pipeline.cli.steering:show_operation",
            "Show OPERATION (its id, or the beginning of it) with the journal of its steps.",
        ),
        LazyCommand(
            "resume",
            "pipeline.cli.steering:resume_operation",
            "Let OPERATION, which needs a person, go on where it was.",
        ),
        LazyCommand(
            "close",
            "pipeline.cli.steering:close_operation",
            "End OPERATION, which needs a person, after you have dealt with it.",
        ),
        LazyCommand(
            "cancel",
            "pipeline.cli.steering:cancel_operation",
            "End OPERATION before it is done, where nothing was begun or where it only waits.",
        ),
        LazyCommand(
            "undo",
            "pipeline.cli.steering:undo_operation",
            "Ask for the inverse of OPERATION, checked like any other; for 24 hours after it.",
        ),
    ),
    group(
        "audit",
        "The audit log: who did what.",
        LazyCommand("list", "pipeline.cli.steering:list_audit", "Print the log, oldest first."),
        LazyCommand(
            "verify",
            "pipeline.cli.steering:verify_audit",
            "Prove that no entry of the log was changed, taken out or slipped in; exit code 1 where one was.",
        ),
    ),
)

_LIST_WITHOUT_VERB: Final = ("games", "groups", "ops")

for _command in (*_COMMANDS, *(command for commands in registered(COMMANDS) for command in commands())):
    cli.add_command(_command)
    if isinstance(_command, click.Group) and _command.name in _LIST_WITHOUT_VERB:
        list_without_verb(_command)
