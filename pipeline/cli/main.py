"""The command line: all commands with where they are. Exit codes: 0 fine, 1 the check or the work failed, 2 wrong use.

Starting it imports no command: `LazyCommand` does when one runs. Packages above this one add theirs by an entry point.
"""

import io
import logging
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from pipeline.base.errors import Refused, StorageError, Transient, first_line
from pipeline.base.extensions import COMMANDS, registered
from pipeline.base.names import is_utf8
from pipeline.base.terminal import PlainFormatter, escape_what_cannot_be_encoded, output_failed, say, say_lines
from pipeline.cli.environments import before, list_without_verb
from pipeline.cli.lazy import LazyCommand, group


def main() -> None:
    """Run a command; what it refuses is one sentence on stderr and exit code 2, a store that fails one and 1.

    Returns where the exit code is 0: a platform that calls us as a function may take any SystemExit for a failure.
    """
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log])
    for own in ("turnout", "pipeline", "listeners", "grants"):
        logging.getLogger(own).setLevel(logging.INFO)  # where a platform has set up the root, basicConfig does nothing
    for noisy in ("py4j", "sqlalchemy.engine", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    escape_what_cannot_be_encoded()
    try:
        _require_text(sys.argv[1:])
        code = _run()
    except SystemExit as ended:  # by which most commands end
        if not ended.code:
            return
        raise
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
    except StorageError as error:
        _end(f"The tables cannot be reached. {error}. Try again; `turnout doctor` tries the store.", 1)
    except _store_errors() as error:
        reason = first_line(error)
        _end(f"The control store does not do its work: {reason}. Try again; if it stays so, check the store.", 1)
    if isinstance(code, int) and code:  # click's own: 0 for help, what it was ended with
        sys.exit(code)


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
    LazyCommand("doctor", "pipeline.cli.doctor:doctor"),
    LazyCommand("setup", "pipeline.cli.jars:fetch_jars"),
    LazyCommand("simulate", "pipeline.cli.simulation:simulate"),
    group(
        "schemas",
        "Schemas of games: versions, plans, registration.",
        LazyCommand("plan", "pipeline.cli.registering:plan_schema"),
        LazyCommand("register", "pipeline.cli.registering:register_schema"),
        LazyCommand("requests", "pipeline.cli.registering:schema_requests"),
        LazyCommand("approve", "pipeline.cli.registering:approve_schema"),
        LazyCommand("reject", "pipeline.cli.registering:reject_schema"),
        LazyCommand("trust", "pipeline.cli.registering:trust_registry"),
        LazyCommand("give-up", "pipeline.cli.registering:give_up_registry"),
        LazyCommand("accept-loss", "pipeline.cli.registering:accept_lost_schemas"),
        LazyCommand("list", "pipeline.cli.schemas:list_schemas"),
        LazyCommand("show", "pipeline.cli.schemas:show_schema"),
        LazyCommand("diff", "pipeline.cli.schemas:diff_schemas"),
        LazyCommand("types", "pipeline.cli.event_types:list_types"),
        LazyCommand("variations", "pipeline.cli.variations:list_variations"),
        LazyCommand("pin-variations", "pipeline.cli.variations:pin_variations"),
        LazyCommand("unpin-variations", "pipeline.cli.variations:unpin_variations"),
        LazyCommand("refuse-variation", "pipeline.cli.variations:refuse_variation"),
        LazyCommand("allow-variation", "pipeline.cli.variations:allow_variation"),
        LazyCommand("merge", "pipeline.cli.variations:merge"),
        LazyCommand("declare", "pipeline.cli.variations:declare"),
        LazyCommand("undeclare", "pipeline.cli.variations:undeclare"),
        LazyCommand("views", "pipeline.cli.event_types:show_views"),
        LazyCommand("keep-views", "pipeline.cli.event_types:keep_views"),
        LazyCommand("drop-views", "pipeline.cli.event_types:drop_views"),
        LazyCommand("accept-type", "pipeline.cli.event_types:accept_type"),
        LazyCommand("withdraw-type", "pipeline.cli.event_types:withdraw_type"),
    ),
    group(
        "games",
        "Games, and unknown names that wait to become games.",
        LazyCommand("list", "pipeline.cli.games:list_games"),
        LazyCommand("pending", "pipeline.cli.games:pending_games"),
        LazyCommand("propose", "pipeline.cli.games:propose_game"),
        LazyCommand("approve", "pipeline.cli.games:approve_game"),
        LazyCommand("rename", "pipeline.cli.games:rename_game"),
        LazyCommand("reject", "pipeline.cli.games:reject_game"),
        LazyCommand("priority", "pipeline.cli.groups:priority"),
        LazyCommand("retire", "pipeline.cli.repairs:retire"),
        LazyCommand("restore", "pipeline.cli.repairs:restore"),
        group(
            "rules",
            "Onboarding rules: which names become games by themselves, and what such games get.",
            LazyCommand("plan", "pipeline.cli.game_rules:plan_rules"),
            LazyCommand("apply", "pipeline.cli.game_rules:apply_rules"),
            LazyCommand("list", "pipeline.cli.game_rules:list_rules"),
        ),
    ),
    group(
        "contracts",
        "Output contracts: what the rows of games' tables promise their readers.",
        LazyCommand("plan", "pipeline.cli.contracts:plan_contracts"),
        LazyCommand("apply", "pipeline.cli.contracts:apply_contracts"),
        LazyCommand("show", "pipeline.cli.contracts:show_contracts"),
    ),
    group(
        "derived",
        "Derived streams: silver and gold tables that follow from games' tables.",
        LazyCommand("list", "pipeline.cli.derived:list_derived"),
        LazyCommand("plan", "pipeline.cli.derived:plan_derived"),
        LazyCommand("apply", "pipeline.cli.derived:apply_derived"),
        LazyCommand("pause", "pipeline.cli.derived:pause_derived"),
        LazyCommand("resume", "pipeline.cli.derived:resume_derived"),
        LazyCommand("repair", "pipeline.cli.derived:repair_derived"),
    ),
    group(
        "books",
        "Days of games that close, and the ledger of closed days.",
        LazyCommand("show", "pipeline.cli.books:show_books"),
        LazyCommand("close", "pipeline.cli.books:close_day"),
        LazyCommand("reopen", "pipeline.cli.reopening:reopen_day"),
        LazyCommand("requests", "pipeline.cli.reopening:list_reopenings"),
        LazyCommand("approve", "pipeline.cli.reopening:approve_reopening"),
        LazyCommand("reject", "pipeline.cli.reopening:reject_reopening"),
        LazyCommand("verify", "pipeline.cli.books:verify_books"),
    ),
    group(
        "ingest",
        "Ingest, from the source into bronze.",
        LazyCommand("run", "pipeline.cli.ingest:run_ingest"),
        LazyCommand("adopt", "pipeline.cli.ingest:adopt_source"),
        LazyCommand("gaps", "pipeline.cli.ingest:accepted_gaps"),
    ),
    group(
        "edge",
        "The gRPC edge: producers send events and get an answer for each.",
        LazyCommand("run", "pipeline.cli.edge:run_edge"),
        group(
            "producers",
            "Producers of the edge: who may send events of which games.",
            LazyCommand("token", "pipeline.cli.edge:make_token"),
            LazyCommand("plan", "pipeline.cli.edge:plan_producers"),
            LazyCommand("apply", "pipeline.cli.edge:apply_producers"),
            LazyCommand("list", "pipeline.cli.edge:list_producers"),
            LazyCommand("revoke", "pipeline.cli.edge:revoke_producer"),
        ),
    ),
    group(
        "source",
        "Records of the source.",
        LazyCommand("probe", "pipeline.cli.source:probe_source"),
    ),
    group(
        "stream",
        "Commands to the streams of single games; a driver acts at its next pass.",
        LazyCommand("own-query", "pipeline.cli.steering:own_query"),
        LazyCommand("accept-gap", "pipeline.cli.quarantine:accept_gap"),
    ),
    LazyCommand("dashboard", "pipeline.cli.simulation:dashboard"),
    LazyCommand("verify", "pipeline.cli.tables:verify"),
    LazyCommand("maintain", "pipeline.cli.tables:maintain"),
    LazyCommand("paths", "pipeline.cli.tables:paths"),
    LazyCommand("try-managed", "pipeline.cli.tables:try_managed"),
    LazyCommand(
        "demo",
        "pipeline.cli.simulation:demo",
        LazyCommand("faults", "pipeline.cli.simulation:demo_faults"),
        LazyCommand("break", "pipeline.cli.simulation:demo_break"),
        LazyCommand("mend", "pipeline.cli.simulation:demo_mend"),
    ),
    LazyCommand("status", "pipeline.cli.status:status"),
    LazyCommand("wait", "pipeline.cli.waiting:wait"),
    LazyCommand("incidents", "pipeline.cli.incidents:incidents"),
    group(
        "alerts",
        "Alert rules, and who gets alerts.",
        LazyCommand("write", "pipeline.cli.alerting:write_alerts"),
    ),
    group(
        "metrics",
        "Metrics of all drivers in one place.",
        LazyCommand("serve", "pipeline.cli.metrics:serve_metrics"),
    ),
    group(
        "quarantine",
        "Refused rows.",
        LazyCommand("list", "pipeline.cli.quarantine:list_quarantine"),
        LazyCommand("show", "pipeline.cli.quarantine:show_quarantine"),
    ),
    group(
        "controller",
        "The process that carries out operations.",
        LazyCommand("run", "pipeline.cli.steering:run_controller"),
    ),
    group(
        "groups",
        "Cluster groups: desired state and drivers.",
        LazyCommand("list", "pipeline.cli.groups:list_groups"),
        LazyCommand("create", "pipeline.cli.groups:create_group"),
        LazyCommand("set", "pipeline.cli.groups:set_group"),
        LazyCommand("remove", "pipeline.cli.groups:remove_group"),
        LazyCommand("start", "pipeline.cli.groups:start"),
        LazyCommand("stop", "pipeline.cli.groups:stop"),
        LazyCommand("restart", "pipeline.cli.groups:restart"),
        LazyCommand("propose", "pipeline.cli.groups:propose"),
        LazyCommand("drain", "pipeline.cli.groups:drain"),
        LazyCommand("run", "pipeline.cli.groups:run_group"),
    ),
    LazyCommand("stop", "pipeline.cli.steering:stop"),
    LazyCommand("move", "pipeline.cli.steering:move"),
    LazyCommand("pause", "pipeline.cli.steering:pause"),
    LazyCommand("resume", "pipeline.cli.steering:resume"),
    group(
        "repair",
        "Repairs of single games, least disruptive first.",
        LazyCommand("actions", "pipeline.cli.repairs:actions"),
        LazyCommand("retry", "pipeline.cli.repairs:retry"),
        LazyCommand("replay", "pipeline.cli.repairs:replay"),
        LazyCommand("dedupe", "pipeline.cli.repairs:dedupe"),
        LazyCommand("rebuild", "pipeline.cli.repairs:rebuild"),
    ),
    group(
        "ops",
        "Operations and their progress.",
        LazyCommand("list", "pipeline.cli.steering:list_operations"),
        LazyCommand("show", "pipeline.cli.steering:show_operation"),
        LazyCommand("resume", "pipeline.cli.steering:resume_operation"),
        LazyCommand("close", "pipeline.cli.steering:close_operation"),
        LazyCommand("cancel", "pipeline.cli.steering:cancel_operation"),
        LazyCommand("undo", "pipeline.cli.steering:undo_operation"),
    ),
    group(
        "deploy",
        "Turnout in a Databricks workspace.",
        LazyCommand("build", "pipeline.cli.deploy:build"),
        LazyCommand("plan", "pipeline.cli.deploy:plan"),
        LazyCommand("diff", "pipeline.cli.deploy:diff"),
        LazyCommand("apply", "pipeline.cli.deploy:apply"),
        LazyCommand("drift", "pipeline.cli.deploy:drift"),
        LazyCommand("adopt", "pipeline.cli.deploy:adopt"),
        LazyCommand("uninstall", "pipeline.cli.deploy:uninstall"),
    ),
    group(
        "audit",
        "The audit log: who did what.",
        LazyCommand("list", "pipeline.cli.steering:list_audit"),
        LazyCommand("verify", "pipeline.cli.steering:verify_audit"),
    ),
)

_LIST_WITHOUT_VERB: Final = ("games", "groups", "ops")

for _command in (*_COMMANDS, *(command for commands in registered(COMMANDS) for command in commands())):
    cli.add_command(_command)
    if isinstance(_command, click.Group) and _command.name in _LIST_WITHOUT_VERB:
        list_without_verb(_command)
