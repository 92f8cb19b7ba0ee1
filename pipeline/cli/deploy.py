"""The commands `turnout deploy ...`: turnout in a Databricks workspace."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from pipeline.base.names import plain
from pipeline.base.terminal import say, say_json
from pipeline.cli.options import combine_options

if TYPE_CHECKING:
    from pipeline.platforms.databricks.deploy.opening import Opened
    from pipeline.platforms.databricks.deploy.plan import DeployStep


@click.command("build")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("app-source"),
    show_default=True,
    help="Folder for the result; an older build there is replaced.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def build(env_dir: Path, out: Path, as_json: bool) -> None:
    """Build the folder from which a Databricks App starts: app.yaml, requirements.txt and the wheel.

    Needs a checkout, and no network. The wheel's version ends in a hash of its content: the same sources give the same
    files. The requirements are locked by hashes; a file that is too large for an app is refused. Where --env-dir is a
    URL, app.yaml names it, and the app shows that environment. JSON: `folder`, `version`, `wheel`, `sha256` of the
    wheel, and `files` with their sizes in bytes.
    """
    from pipeline.platforms.databricks.deploy.build import build_app_source
    from pipeline.platforms.local.shared import require_checkout
    from pipeline.settings.storage import read_link

    made = build_app_source(require_checkout("an app is built from sources"), out, read_link(env_dir))
    if as_json:
        say_json(
            {
                "folder": str(made.folder.absolute()),
                "version": made.wheel.version,
                "wheel": made.wheel.path.name,
                "sha256": made.wheel.sha256,
                "files": made.bytes_by_file,
            }
        )
        return
    say(f"turnout {made.wheel.version} in {made.folder}:")
    for name, size in made.bytes_by_file.items():
        say(f"  {size:>9,}  {name}")


def _variable(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for each in given:
        name, sign, value = each.partition("=")
        if not sign:
            raise click.BadParameter(f"{each!r} has no '='. Give NAME=VALUE.")
        values[name] = value
    return values


on_target: Final = combine_options(
    click.option("--target", help="Target of databricks.yml; without it, the default target."),
    click.option(
        "--var", "variables", multiple=True, callback=_variable, metavar="NAME=VALUE",
        help="Value of a variable of the bundle; without it, `root` is the URL of --env-dir.",
    ),
    click.option(
        "--bundle", type=click.Path(file_okay=False, path_type=Path), default=Path(),
        help="Folder with databricks.yml.",
    ),
)  # fmt: skip
"""Which part of which workspace a command is about."""

_OUT: Final = Path("app-source")


@click.command("plan")
@on_target
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def plan(env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, as_json: bool) -> None:
    """Print what `turnout deploy apply` would do in the workspace, and change nothing there.

    Builds the wheel. Exit code 2 if something cannot be done, with the reason. JSON: `target`, `environment`, `root`,
    `store`, `notes`, `others`, and `steps`, each with `what`, `address`, `label`, `id`, `why`, `restarts`, `changes`.
    """
    _print(_opened(env_dir, target, variables, bundle), as_json=as_json, changes_too=False)


@click.command("diff")
@on_target
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def diff(env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, as_json: bool) -> None:
    """Print each value in the workspace that differs from the bundle: what it is, and what it should be.

    JSON as for `turnout deploy plan`.
    """
    _print(_opened(env_dir, target, variables, bundle), as_json=as_json, changes_too=True)


@click.command("drift")
@on_target
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def drift(env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, as_json: bool) -> None:
    """Print what others have changed in the workspace since the last apply.

    Exit code 1 if something has changed. The next apply reverts it. JSON: `target`, `drifted`, a list with `address`,
    `label` and `changes`.
    """
    opened = _opened(env_dir, target, variables, bundle, build=False)
    drifted = opened.deployment.drift()
    if as_json:
        rows = [
            {"address": each.address, "label": each.label, "why": each.why, "changes": list(map(str, each.changes))}
            for each in drifted
        ]
        say_json({"target": opened.target, "drifted": rows, "others": opened.deployment.others([])})
    else:
        _say_others(opened, [])
        for each in drifted:
            say(plain(f"{each.address} ({each.label}){f': {each.why}' if each.why else ''}"))
            for change in each.changes:
                say(plain(f"    {change}"))
        say(f"{len(drifted)} of {len(opened.deployment.journal.entries)} resources have changed since the last apply.")
    sys.exit(1 if drifted else 0)


@click.command("apply")
@on_target
@click.option("--yes", is_flag=True, help="Do not ask before the first change.")
@click.option("--no-restart", is_flag=True, help="Leave runs as they are: each takes the change at its next start.")
def apply(
    env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, yes: bool, no_restart: bool
) -> None:
    """Make the workspace as the bundle describes it: create, update in place, restart, delete.

    Prints the plan and asks. Each change stands in the target's journal before it is made; a second apply goes on where
    one was interrupted, and makes nothing twice. It never deletes or replaces what holds data. Groups start again last,
    a tenth of them at a time; exit code 2 if one does not run again within 25 minutes; later ones run on.
    """
    opened = _opened(env_dir, target, variables, bundle)
    steps = opened.deployment.plan()
    _say_steps(opened, steps, changes_too=True)
    if not any(step.is_change for step in steps):
        return
    if not yes:
        click.confirm(f"Apply this to target {opened.target}?", abort=True)
    opened.deployment.apply(steps, lambda step: say(plain(f"done: {step}")), restart=not no_restart)
    say(plain(opened.ensure_group()))
    say(f"Target {opened.target} is as the bundle says.")


@click.command("adopt")
@on_target
@click.argument("address")
def adopt(env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, address: str) -> None:
    """Adopt the existing resource of the workspace that has the name of ADDRESS, such as `jobs.ingest`.

    It gets the environment's mark, and is updated to what the bundle says.
    """
    opened = _opened(env_dir, target, variables, bundle)
    step = opened.deployment.adopt(address)
    say(plain(f"done: {step}"))


@click.command("uninstall")
@on_target
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, yes: bool) -> None:
    """Remove turnout's resources from the workspace, by the target's journal and the environment's mark; never data.

    Prints what stays: the control store, schemas, the external location and all tables.
    """
    opened = _opened(env_dir, target, variables, bundle, build=False)
    steps = opened.deployment.uninstall_plan()
    _say_head(opened)
    for step in steps:
        say(plain(str(step)))
    _say_others(opened, steps)
    if not steps:
        say(f"The journal of target {opened.target} names nothing.")
        return
    if not yes:
        click.confirm(f"Remove this from target {opened.target}?", abort=True)
    opened.deployment.uninstall(steps, lambda _: None)
    left = [step for step in steps if step.what == "keep"]
    say(
        f"Removed {len(steps) - len(left)} resources. {len(left)} stay:" if left else f"Removed {len(steps)} resources."
    )
    for step in left:
        say(plain(f"  {step.address} ({step.label}): {step.why}"))


def _opened(
    env_dir: Path, target: str | None, variables: dict[str, str], bundle: Path, *, build: bool = True
) -> "Opened":
    from pipeline.control.deployed_groups import open_groups
    from pipeline.platforms.databricks.deploy.opening import open_deployment

    folder = bundle.resolve()
    return open_deployment(env_dir, folder, target, variables, folder / _OUT if build else None, open_groups, parse)


def parse(words: Sequence[str]) -> str | None:
    """Return why words are no command of turnout, None where they are. Nothing runs, and no environment is read."""
    from pipeline.cli.lazy import LazyCommand
    from pipeline.cli.main import cli

    command: click.Command | None = cli
    left = list(words)
    with click.Context(cli) as context:
        while isinstance(command, click.Group):
            word = left.pop(0) if left else ""
            command = command.get_command(context, word)
        if command is None:
            return f"there is no command {word!r}"
        if isinstance(command, LazyCommand):
            command = command.verbs[left.pop(0)].command if left and left[0] in command.verbs else command.command
    with click.Context(command) as context:
        try:
            given, beyond, _ = command.make_parser(context).parse_args(left)
            for each in command.get_params(context):
                value, _ = each.consume_value(context, given)
                if not each.value_is_missing(value):
                    each.type_cast_value(context, value)
                elif each.required:
                    raise click.MissingParameter(ctx=context, param=each)
        except click.ClickException as error:
            return error.format_message()
    return f"{beyond[0]!r} is one word too many" if beyond else None


def _print(opened: "Opened", *, as_json: bool, changes_too: bool) -> None:
    steps = opened.deployment.plan()
    if as_json:
        rows = [
            {
                "what": step.what, "address": step.address, "label": step.label, "id": step.id, "why": step.why,
                "restarts": step.restarts, "changes": list(map(str, step.changes)),
            }
            for step in steps
        ]  # fmt: skip
        say_json(
            {
                "target": opened.target,
                **opened.places,
                "notes": list(opened.notes),
                "others": opened.deployment.others(steps),
                "steps": rows,
            }
        )
        return
    _say_steps(opened, steps, changes_too=changes_too)


def _say_head(opened: "Opened") -> None:
    """Say which places a command is about, before it lists anything or asks."""
    words = {"environment": "environment", "root": "tables below", "store": "control store"}
    said = ", ".join(f"{words[name]} {value}" for name, value in opened.places.items() if value)
    say(plain(f"Target {opened.target}: {said}."))


def _say_others(opened: "Opened", steps: "Sequence[DeployStep]") -> None:
    """Say which jobs look like turnout's and are left."""
    for each in opened.deployment.others(steps):
        say(plain(each))


def _say_steps(opened: "Opened", steps: "Sequence[DeployStep]", *, changes_too: bool) -> None:
    _say_head(opened)
    for note in opened.notes:
        say(plain(note))
    for step in steps:
        if step.what != "nothing":
            say(plain(str(step)))
            for change in step.changes if changes_too else ():
                say(plain(f"    {change}"))
    _say_others(opened, steps)
    count = sum(step.is_change for step in steps)
    as_it_is = len(steps) - count
    say(f"Target {opened.target}: {count} to change, {as_it_is} as they should be." if count else
        f"Target {opened.target} is as the bundle says: nothing to do.")  # fmt: skip
