"""`turnout catalog`: the embedded catalog; `turnout read`: a game's table, read only as far as the catalog allows."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from grants.catalog import CatalogUnavailable
from grants.cli.options import AccessContext
from pipeline.base.errors import Refused
from pipeline.base.terminal import say, say_json
from pipeline.cli.options import Finite, keys_of
from pipeline.control.acts import DirectAct
from pipeline.settings.tree import load

_LOOK_SECONDS: Final = 0.2


@click.command("serve")
def serve(env_dir: Path) -> None:
    """Serve the embedded catalog on loopback, at the setting `access.port`, until it is stopped."""
    from grants.server.serving import serve as run
    from pipeline.control.present import noted

    settings, paths = load(env_dir)
    if settings.access.catalog != "embedded":
        raise Refused(
            f"The setting access.catalog is {settings.access.catalog!r}: only the embedded catalog can be served."
        )
    with noted(paths, "catalog serve"):
        run(paths.catalog, settings.access.port)


@click.command("add-user")
@click.argument("names", nargs=-1, required=True)
@click.option("--group", "groups", multiple=True, help="Group of these users, created if missing; repeatable.")
@click.option("--wait", type=Finite(0, 3600), default=0.0, help="Seconds to wait for a starting catalog.")
def add_user(env_dir: Path, names: tuple[str, ...], groups: tuple[str, ...], wait: float) -> None:
    """Create users NAMES in the embedded catalog, or add existing ones to groups."""
    from grants.applying.proposals import target

    context = AccessContext(env_dir)
    with context.acting(DirectAct.ADD_USER, [target(name) for name in names], groups=list(groups)):
        _add(context, names, groups, wait)
    say(f"{', '.join(names)}: present{', in ' + ', '.join(groups) if groups else ''}.")


def _add(context: AccessContext, names: Sequence[str], groups: Sequence[str], wait: float) -> None:
    from grants.catalogs.opening import embedded
    from grants.catalogs.people import add

    until = time.monotonic() + wait
    while True:
        try:
            catalog = embedded(context.settings.access, context.paths)
            for name in names:
                add(catalog, name, groups)
            break
        except CatalogUnavailable:
            if time.monotonic() >= until:
                raise
            time.sleep(_LOOK_SECONDS)


@click.command("relocate")
@click.argument("former", type=click.Path(file_okay=False, path_type=Path))
@click.option("--reason", required=True, help="Reason, kept in the audit log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def relocate(env_dir: Path, former: Path, reason: str, yes: bool) -> None:
    """Register the games' tables where they lie now, after the environment's folder FORMER was moved.

    Prints the old and the new place of each table, and asks. All grants on them stay. Changes only the embedded
    catalog, and only tables that it shows in FORMER. Refused, with nothing changed, if one still lies there.
    """
    from grants.applying import moved_tables, proposals
    from grants.catalogs.opening import embedded

    context = AccessContext(env_dir)
    with context.acting(DirectAct.RELOCATE_TABLES, (), former=str(former.absolute()), reason=reason):
        catalog, schema = embedded(context.settings.access, context.paths), proposals.schema_of(context.settings.access)
        found = moved_tables.find(catalog, schema, context.engine, context.paths, former)
        for each in found.moved:
            owner = "" if each.owner == catalog.executor else f", owned by {each.owner}"
            say(f"{each.securable.full_name}: {each.location} → {each.own}{owner}")
        for each in found.elsewhere:
            say(f"Stays: {each.other}", err=True)
        if found.moved and not yes:
            click.confirm(f"Register {len(found.moved)} tables at their new places?", abort=True)
        for each in found.moved:
            catalog.relocate(each)
    done = f"Registered {len(found.moved)} tables at their new places" if found.moved else "Nothing has moved"
    say(f"{done}. Grants stay as they were.")


@click.command("read")
@click.argument("game")
@click.option("--as", "principal", required=True, help="The principal that reads.")
@click.option("--first", type=click.IntRange(1, 1000), default=5, show_default=True, help="Rows to print.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
def read(env_dir: Path, game: str, principal: str, first: int, as_json: bool) -> None:
    """Read GAME (name or key) as a principal, with a credential from the embedded catalog.

    Without the right the catalog answers 403; the command names what is missing and ends with exit code 2.
    """
    from grants.cli.reading import rows

    context = AccessContext(env_dir)
    (key,) = keys_of((game,), context.names())
    names, records = rows(context.settings.access, context.paths, key, principal, first)
    if not as_json:
        say("  ".join(names))
    for row in records:
        values = dict(zip(names, row, strict=True))
        if as_json:
            say_json(values)
        else:
            say("  ".join(str(each) for each in row))
    if not records:
        say("No rows.", err=True)
