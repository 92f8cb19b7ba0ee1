"""What the targets of a bundle must be beside each other, so that none takes, changes or removes what another one made.

The environment is in the name and mark of everything, and the root path has the journal.
"""

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Final

from pipeline.platforms.databricks.deploy.bundle import Bundle, TargetPlace, places

_ROOT_PATH: Final = re.compile(r"/Workspace(/[^/${}]+)+")
_OF_ALL: Final = "/Workspace/Shared"
"""Every user of a workspace may write there [docs.databricks.com, workspace/workspace-browser]."""


def problems_of_targets(bundle: Bundle) -> Iterator[str]:
    """Yield what is wrong with the targets; the chosen one with the values that were given to it."""
    there = places(bundle.folder)
    there[bundle.target] = TargetPlace(bundle.root_path, bundle.variables.get("environment", ""), "")
    for name, place in there.items():
        yield from (f"target {name}: {text}" for text in _of_root_path(place.root_path))
    for (one, first), (other, second) in combinations(there.items(), 2):
        if first.environment == second.environment:
            yield (
                f"targets {one} and {other} have the same environment, {first.environment}: each would take the "
                "other's things; give each its own"
            )
        paths = first.root_path, second.root_path
        if all(paths) and any(f"{paths[not at]}/".startswith(f"{paths[at]}/") for at in (0, 1)):
            yield f"targets {one} and {other} share the folder {min(paths, key=len)}: each needs a root_path of its own"


def _of_root_path(path: str) -> Iterator[str]:
    if not path:
        yield "workspace.root_path is missing; give a folder of this target alone, such as /Workspace/Applications/x"
    elif not _ROOT_PATH.fullmatch(path) or ".." in path.split("/"):
        yield f"workspace.root_path must be a folder below /Workspace without / at its end, and is {path!r}"
    elif f"{path}/".startswith(f"{_OF_ALL}/"):
        yield f"workspace.root_path is below {_OF_ALL}, where every user may replace the wheel; name another folder"
