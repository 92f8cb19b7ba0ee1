"""The commands this package adds to `turnout`, with where they are; found by its entry point."""

from collections.abc import Sequence

import click

from pipeline.cli.lazy import LazyCommand, group


def commands() -> Sequence[click.Command]:
    """Return the commands this package adds; none of their modules is imported."""
    return (
        group(
            "grants",
            "Who may read which game's table: shown, planned, given, taken, proven.",
            LazyCommand(
                "matrix", "grants.cli.access:matrix", "Show who reads what, as the controller last read the catalog."
            ),
            LazyCommand(
                "why",
                "grants.cli.access:why",
                "Tell whether PRINCIPAL reads GAME (name or key), and why, as the catalog says right now.",
            ),
            LazyCommand(
                "plan",
                "grants.cli.access:plan",
                "Show what would change, for whom, and the statements; `apply` with the same options does it.",
            ),
            LazyCommand(
                "apply",
                "grants.cli.access:apply",
                "Grant and revoke access: plan again, check, apply, observe in the catalog, probe.",
            ),
            LazyCommand(
                "undo",
                "grants.cli.access:undo",
                "Take back what OPERATION did about access, and only that, as far as nothing newer rests on it.",
            ),
            LazyCommand(
                "expire",
                "grants.cli.access:expire",
                "Take what has run out now; a controller that runs does it by itself.",
            ),
            LazyCommand(
                "export",
                "grants.cli.access:export",
                "Print what turnout gave and what holds, as a policy, as SQL or as Terraform.",
            ),
            LazyCommand(
                "drift",
                "grants.cli.drift:drift",
                "Show where the catalog differs right now from what turnout gave; or adopt, revert or ignore findings.",
            ),
            LazyCommand(
                "requests",
                "grants.cli.requests:requests",
                "List requests: first those that wait for a decision, the oldest on top.",
            ),
            LazyCommand(
                "approve",
                "grants.cli.requests:approve",
                "Approve another person's REQUEST: it is planned again and applied.",
            ),
            LazyCommand("reject", "grants.cli.requests:reject", "Reject another person's REQUEST."),
            LazyCommand("withdraw", "grants.cli.requests:withdraw", "Withdraw REQUEST of your own."),
        ),
        group(
            "catalog",
            "The embedded catalog, a server of this machine's own.",
            LazyCommand(
                "serve", "grants.cli.catalog:serve", "Serve the embedded catalog on loopback until it is stopped."
            ),
            LazyCommand(
                "add-user",
                "grants.cli.catalog:add_user",
                "Make users NAMES in the embedded catalog, or put those that are there into groups.",
            ),
        ),
        LazyCommand(
            "read",
            "grants.cli.catalog:read",
            "Read GAME (name or key) as a principal, with a credential that the embedded catalog gives or refuses.",
        ),
    )
