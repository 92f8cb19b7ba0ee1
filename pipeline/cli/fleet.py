"""The commands `turnout fleet ...`: turnout in a Databricks workspace."""

from pathlib import Path

import click

from pipeline.terminal import say, say_json


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
    from pipeline.fleet.build import build_app_source
    from pipeline.setup.shared import require_checkout
    from pipeline.storage_settings import read_link

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
