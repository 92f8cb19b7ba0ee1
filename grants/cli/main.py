"""The commands this package adds to `turnout`, with where they are; found by its entry point."""

from collections.abc import Sequence

import click

from pipeline.cli.lazy import LazyCommand, group


def commands() -> Sequence[click.Command]:
    """Return the commands this package adds; none of their modules is imported."""
    return (
        group(
            "grants",
            "Access to games' tables: show, plan, grant, revoke, prove.",
            LazyCommand("matrix", "grants.cli.access:matrix"),
            LazyCommand("why", "grants.cli.access:why"),
            LazyCommand("plan", "grants.cli.access:plan"),
            LazyCommand("apply", "grants.cli.access:apply"),
            LazyCommand("undo", "grants.cli.access:undo"),
            LazyCommand("expire", "grants.cli.access:expire"),
            LazyCommand("export", "grants.cli.access:export"),
            LazyCommand("drift", "grants.cli.drift:drift"),
            LazyCommand("requests", "grants.cli.requests:requests"),
            LazyCommand("approve", "grants.cli.requests:approve"),
            LazyCommand("reject", "grants.cli.requests:reject"),
            LazyCommand("withdraw", "grants.cli.requests:withdraw"),
        ),
        group(
            "catalog",
            "The embedded catalog, a server on this machine.",
            LazyCommand("serve", "grants.cli.catalog:serve"),
            LazyCommand("add-user", "grants.cli.catalog:add_user"),
            LazyCommand("relocate", "grants.cli.catalog:relocate"),
        ),
        LazyCommand("read", "grants.cli.catalog:read"),
    )
