"""Reads the bundle: `databricks.yml` and what it includes, for one target, with variables put in.

The files are those of `databricks bundle deploy` (Databricks Asset Bundles); what turnout uses of the format is read
here: targets, variables, includes, resources, and `${...}` for variables, the target and the workspace's root.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from pipeline.base.errors import Refused
from pipeline.base.texts import join_limited

FILE: Final = "databricks.yml"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9_.-]+)\}")
_RESOURCE: Final = "resources."
_LOADER: Final = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
_DEPTH: Final = 10  # a variable may name another one, and so on


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that should be in the workspace; references to other things are still in its definition."""

    kind: str  # `jobs`, `apps` and so on, as the bundle calls them
    key: str
    definition: Mapping[str, Any] = field(hash=False)

    @property
    def address(self) -> str:
        """Return its kind and key, as in the bundle's references."""
        return f"{self.kind}.{self.key}"

    @property
    def needs(self) -> frozenset[str]:
        """Return the addresses of the resources that must be there before it."""
        names = (name for text in _texts(self.definition) for name in _REFERENCE.findall(text))
        parts = (name.removeprefix(_RESOURCE).split(".") for name in names if name.startswith(_RESOURCE))
        return frozenset(".".join(part[:2]) for part in parts)


@dataclass(frozen=True, slots=True)
class Bundle:
    """What one target of the bundle says."""

    folder: Path
    target: str
    root_path: str  # of the workspace's files that belong to it
    variables: Mapping[str, str]
    resources: tuple[Resource, ...]

    @property
    def environment(self) -> str:
        """Return the environment's name, which names and tags have."""
        return self.variables["environment"]


@dataclass(frozen=True, slots=True)
class TargetPlace:
    """Where a target's things are, as far as the bundle's files say it without values from outside."""

    root_path: str
    environment: str
    root: str  # URL of the tables; empty where it is given on the command line


def places(folder: Path) -> dict[str, TargetPlace]:
    """Return the places of all targets, by name; references that nothing resolves are left in them.

    Raises:
        Refused: a file is missing or wrong.
    """
    top = _read(folder / FILE)
    return {str(name): _place(top, name, {}) for name in mapping(top.get("targets"), "targets")}


def place_of(folder: Path, target: str | None, given: Mapping[str, str]) -> TargetPlace:
    """Return the place of a target, the default one where None, with the values that are `given`.

    Raises:
        Refused: a file is missing or wrong, or the target does not exist.
    """
    top = _read(folder / FILE)
    return _place(top, _chosen(top, target), given)


def _place(top: Mapping[str, Any], name: str, given: Mapping[str, str]) -> TargetPlace:
    chosen = mapping(mapping(top.get("targets"), "targets")[name], f"target {name}")
    defaults = {each: said.get("default") for each, said in _declared(top).items()}
    values = {**defaults, **mapping(chosen.get("variables"), f"variables of target {name}"), **given}
    known = {f"var.{each}": str(value) for each, value in values.items() if value is not None}
    known |= {"bundle.target": str(name), "bundle.name": _name(top)}
    root_path = mapping(chosen.get("workspace"), f"workspace of target {name}").get("root_path") or ""
    parts = (str(root_path), known.get("var.environment", ""), known.get("var.root", ""))
    return TargetPlace(*(_put(each, known) for each in parts))


def _chosen(top: Mapping[str, Any], target: str | None) -> str:
    targets = mapping(top.get("targets"), "targets")
    name = target or _default_target(targets)
    if name not in targets:
        raise Refused(f"The bundle has no target {name!r}. Targets: {join_limited(sorted(map(str, targets)))}.")
    return name


def mapping(value: Any, place: str) -> dict[str, Any]:
    """Return a mapping of a bundle's file; an empty one where nothing stands there.

    Raises:
        Refused: something else stands there.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refused(f"The bundle's {place} must have keys, and is {shown(value)}. Correct the file.")
    return value


def shown(value: Any) -> str:
    """Return what kind of value stands in a file."""
    kinds = ((list, "a list"), (str, "a text"), (dict, "a mapping"), (type(None), "empty"))
    return next((text for kind, text in kinds if isinstance(value, kind)), f"the value {value!r}")


def _name(top: Mapping[str, Any]) -> str:
    return str(mapping(top.get("bundle"), "bundle").get("name", ""))


def _declared(top: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: mapping(each, f"variable {name}") for name, each in mapping(top.get("variables"), "variables").items()
    }


def load_bundle(folder: Path, target: str | None, given: Mapping[str, str]) -> Bundle:
    """Return the bundle of a folder for a target, the default one where None, with the values that are `given`.

    Raises:
        Refused: a file is missing or wrong, the target does not exist, or a variable has no value.
    """
    top = _read(folder / FILE)
    name = _chosen(top, target)
    chosen = mapping(mapping(top.get("targets"), "targets")[name], f"target {name}")
    base = {"bundle.target": name, "bundle.name": _name(top)}
    own = mapping(chosen.get("variables"), f"variables of target {name}")
    for each, value in own.items():
        if isinstance(value, dict | list):
            raise Refused(f"The variable {each} of target {name} in the bundle must be a text, and is {shown(value)}.")
    values = _variables(_declared(top), {**own, **given}, base)
    root_path = str(mapping(chosen.get("workspace"), f"workspace of target {name}").get("root_path") or "")
    known = {**base, **{f"var.{each}": value for each, value in values.items()}}
    known["workspace.root_path"] = root_path = _put(root_path, known)
    resources: dict[tuple[str, str], Resource] = {}
    for path in [folder / FILE, *included(folder, top)]:
        tree = top if path == folder / FILE else _read(path)
        for kind, things in mapping(tree.get("resources"), f"resources in {path.name}").items():
            for key, definition in mapping(things, f"{kind} in {path.name}").items():
                if (kind, key) in resources:
                    raise Refused(f"{path} defines {kind}.{key} a second time. Remove one of the two.")
                if not isinstance(definition, dict):
                    raise Refused(
                        f"{kind}.{key} in {path.name} of the bundle must have keys, and is {shown(definition)}. "
                        "Correct the file."
                    )
                resources[kind, key] = Resource(kind, key, _placed(put(definition, known), path.parent))
    return Bundle(folder, name, root_path, values, tuple(resources.values()))


def _placed(definition: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a definition whose file is named from the root; a bundle names it from the file that says it."""
    if "file_path" in definition:
        definition["file_path"] = str((folder / str(definition["file_path"])).resolve())
    return definition


def put(value: Any, known: Mapping[str, str]) -> Any:
    """Return a value of the bundle with the known references replaced in all of its texts."""
    if isinstance(value, Mapping):
        return {key: put(each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [put(each, known) for each in value]
    return _put(value, known) if isinstance(value, str) else value


def unresolved(value: Any) -> list[str]:
    """Return the references that are left in a value."""
    return sorted({name for text in _texts(value) for name in _REFERENCE.findall(text)})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def _put(text: str, known: Mapping[str, str]) -> str:
    for _ in range(_DEPTH):
        new = _REFERENCE.sub(lambda found: known.get(found[1], found[0]), text)
        if new == text:
            return text
        text = new
    raise Refused(f"{text!r} in the bundle names itself. Give its variable a value.")


def _variables(declared: Mapping[str, Any], given: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    unknown = sorted(given.keys() - declared.keys())
    if unknown:
        raise Refused(
            f"The bundle has no variable {join_limited(unknown)}. Variables: {join_limited(sorted(declared))}."
        )
    values: dict[str, str] = {}
    missing = []
    for name, declaration in declared.items():
        value = given.get(name, (declaration or {}).get("default"))
        if value is None:
            missing.append(f"  - {name}: {(declaration or {}).get('description', '')}".rstrip(": "))
        else:
            values[name] = _put(str(value), base)
    if missing:
        lines = "\n".join(missing)
        raise Refused(
            f"{len(missing)} variable(s) of the bundle have no value. Give each with --var NAME=VALUE, or in the "
            f"target's `variables` of {FILE}:\n{lines}"
        )
    return values


def _default_target(targets: Mapping[str, Any]) -> str:
    for name, target in targets.items():
        if mapping(target, f"target {name}").get("default"):
            return str(name)
    raise Refused("The bundle has no default target. Name one with --target.")


def included(folder: Path, top: Mapping[str, Any]) -> list[Path]:
    """Return the files that a bundle includes, in their order."""
    patterns = top.get("include") or []
    if not isinstance(patterns, list) or not all(isinstance(each, str) for each in patterns):
        raise Refused(f"The bundle's include must be a list of texts, and is {shown(patterns)}. Correct {FILE}.")
    return sorted({path for pattern in patterns for path in folder.glob(pattern)})


@lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """Return the content of a file, which nobody changes: it is read once for each group."""
    return yaml.load(text, _LOADER)  # noqa: S506 - a safe one


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = _parsed(path.read_text("utf-8"))
    except FileNotFoundError:
        raise Refused(f"{path} does not exist. Run this in a checkout of turnout, or name it with --bundle.") from None
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise Refused(f"{path}{line} is no YAML: {error.problem}.") from error
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Refused(f"{path} cannot be read: {str(error).splitlines()[0]}.") from error
    if not isinstance(tree, dict):
        raise Refused(f"{path} is no bundle: it has no keys at its top.")
    return tree
