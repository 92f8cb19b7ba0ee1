"""The commands `turnout edge …`: the gRPC edge, and who may send through it."""

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipeline.base.errors import Refused
from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json, say_lines
from pipeline.cli.context import CommandContext, load_with_source
from pipeline.cli.options import Decorator, required_reason, source_option

if TYPE_CHECKING:
    from pipeline.control.producers.proposals import ProducersProposal

_FILE = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
_PEM_FILE = click.Path(dir_okay=False, path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


def _pem(option: str, name: str, text: str) -> Decorator[Any]:
    return click.option(option, name, metavar="FILE", type=_PEM_FILE, help=text)


@click.command("run")
@click.option(
    "--listen-token", "token", metavar="HOST:PORT",
    help="Where producers with tokens reach it; without TLS a loopback address.",
)  # fmt: skip
@click.option("--listen-mtls", "mtls", metavar="HOST:PORT", help="Where producers with client certificates reach it.")
@click.option(
    "--listen-health", "health", metavar="HOST:PORT",
    help="Where the health service answers alone and without TLS, for probes; it also answers on the other ports.",
)  # fmt: skip
@_pem("--tls-cert", "certificate", "The edge's certificate and those between it and its root, in PEM form.")
@_pem("--tls-key", "key", "The certificate's key, in PEM form without a passphrase.")
@_pem("--client-ca", "client_ca", "Certificates that those of producers lead to, in PEM form.")
@click.option("--name", help="Name of this edge, in leases and metrics; by default its HOST:PORT.")
@source_option()
def run_edge(env_dir: Path, name: str | None, source: str | None, **ports: Any) -> None:
    """Run an edge: it takes events from producers and answers once the Kafka topic or landing table has them.

    Several edges may run, each under a name of its own. SIGTERM or Ctrl-C drains it: it takes nothing new, answers
    what it has, and ends within about ten seconds. The three files are read again when they change. See docs/edge.md.
    """
    from pipeline.edge import listening, process

    settings, paths = load_with_source(env_dir, source)
    where = listening.parse_ports(**ports)
    sys.exit(process.run_edge(settings, paths, where, process.edge_name(name or str(where.first))))


@click.command("token")
def make_token(env_dir: Path) -> None:  # noqa: ARG001 -- every command has the option
    """Print a new token for a producer, and its SHA-256 for the file of producers. turnout keeps neither."""
    from pipeline.store.edge_producers import sha256_of

    token = secrets.token_urlsafe(32)
    say(f"token        {token}")
    say(f"token_sha256 {sha256_of(token)}")


@click.command("plan")
@_FILE
@_JSON
def plan_producers(env_dir: Path, file: Path, as_json: bool) -> None:
    """Show what the producers in FILE would change; changes nothing.

    The last line is the plan's hash for `turnout edge producers apply --plan`.
    """
    proposal = _planned(CommandContext(env_dir), file)
    if as_json:
        say_json({"plan": proposal.hash, "changes": proposal.changes, "lines": proposal.lines})
    else:
        say_lines("\n".join(map(plain, [*proposal.lines, f"plan {proposal.hash}"])))


@click.command("apply")
@_FILE
@click.option("--plan", "expected", help="Apply only if the plan still has this hash.")
@required_reason("Reason, kept in the audit log.")
@_JSON
def apply_producers(env_dir: Path, file: Path, expected: str | None, reason: str, as_json: bool) -> None:
    """Replace the producers by those in FILE; applied again, it changes nothing. Edges follow within 10 seconds.

    A revoked token or certificate stays revoked, whether FILE has its producer or not.
    """
    from pipeline.control.producers.proposals import apply

    context = CommandContext(env_dir)
    proposal = _planned(context, file)
    if expected is not None and expected != proposal.hash:
        raise Refused(f"The plan has changed and is {proposal.hash} now. Review it again.")
    say_lines("\n".join(map(plain, proposal.lines)), err=as_json)
    number = proposal.seen.number
    if proposal.changes:
        number = apply(context.settings, context.engine, proposal, context.actor, reason).number
    if as_json:
        say_json({"number": number, "changes": proposal.changes, "lines": proposal.lines})


@click.command("list")
@_JSON
def list_producers(env_dir: Path, as_json: bool) -> None:
    """Print the producers in force as a file that `turnout edge producers apply` takes, and who is revoked."""
    from pipeline.control.producers.producers_file import render
    from pipeline.store.edge_producers import read_producers

    known = read_producers(CommandContext(env_dir).engine)
    if as_json:
        say_json({
            "number": known.number, "actor": known.actor, "applied_at": known.applied_at or None,
            "producers": [asdict(each) for each in known.producers],
        })  # fmt: skip
        return
    say_lines(render(known.producers))
    for each in known.producers:
        if each.revoked:
            say(f"# revoked: {each.name}")


@click.command("revoke")
@click.argument("name")
@required_reason("Reason, kept in the audit log.")
def revoke_producer(env_dir: Path, name: str, reason: str) -> None:
    """Refuse the token and certificate of the producer NAME for ever: new calls at once, open streams within 10 s."""
    from pipeline.control.producers.proposals import revoke

    context = CommandContext(env_dir)
    revoke(context.settings, context.engine, name, context.actor, reason)
    say(f"the producer {plain(name)} is revoked")


def _planned(context: CommandContext, file: Path) -> "ProducersProposal":
    from pipeline.control.producers.proposals import plan

    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"The producers {file} cannot be read: {error}.") from error
    return plan(context.engine, text)
