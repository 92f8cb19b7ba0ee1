"""Writes what docs say of the code, below the line "generated" of each page: `python -m docs.generate [--check]`.

Settings come from their classes and docstrings, commands from their `--help`, the tests of guarantees and faults from
the mark `proves` of those tests.
"""

import ast
import inspect
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

import click

from pipeline.cli.lazy import LazyCommand
from pipeline.cli.main import cli
from pipeline.settings.parsing import named_tables, ranges_of
from pipeline.settings.tree import Settings

_ROOT: Final = Path(__file__).resolve().parent.parent
_LINE: Final = "\n<!-- generated -->\n"
_SHARED: Final = 10  # an option of at least as many commands is described once
_TYPES: Final[Mapping[Any, str]] = {
    bool: "`true` or `false`",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple: "a list of texts",
}


def main(arguments: list[str]) -> int:
    """Write the generated parts, or with `--check` only name the pages that would change; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.generate [--check]", file=sys.stderr)
        return 2
    stale = 0
    for name, made in pages().items():
        path = _ROOT / "docs" / name
        text = path.read_text("utf-8")
        wanted = text.partition(_LINE)[0] + _LINE + "\n" + made
        if wanted != text:
            stale += 1
            print(f"{'would change' if arguments else 'wrote'}: docs/{name}")
            if not arguments:
                path.write_text(wanted, "utf-8")
    return 1 if arguments and stale else 0


def pages() -> dict[str, str]:
    """Return what is generated of each page."""
    proofs = proven(_ROOT / "tests")
    return {
        "settings.md": _settings(),
        "commands.md": _commands(),
        "guarantees.md": _proofs(proofs, "G"),
        "faults.md": _proofs(proofs, "ABDH"),
    }


# ------------------------------------------------------------------------------------------------------------ settings


def _settings() -> str:
    blocks = []
    tables = [(each.name, each.type) for each in fields(Settings) if is_dataclass(each.type)]
    named = [(f"{each.name}.NAME", inside) for each in fields(Settings) if (inside := named_tables(each.type))]
    for section, cls in [("", Settings), *tables, *named]:
        assert isinstance(cls, type)
        if section:
            blocks.append(f"## Of {section}\n\n{_prose(inspect.getdoc(cls) or '')}")
        hints, ranges, texts, default = get_type_hints(cls), dict(ranges_of(cls)), _field_docs(cls), cls()
        for name in (name for name in hints if not is_dataclass(hints[name]) and not named_tables(hints[name])):
            value = getattr(default, name)
            written = "{}" if isinstance(value, Mapping) else json.dumps(value)
            limits = f" from {ranges[name].low:g} to {ranges[name].high:g}" if name in ranges else ""
            head = f"### `{section}{'.' if section else ''}{name}`"
            blocks.append(f"{head}\n\nDefault: `{written}`, {_kind(hints[name])}{limits}.\n\n{_prose(texts[name])}")
    return "\n\n".join(blocks) + "\n"


def _kind(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(f"`{each}`" for each in get_args(hint))
    return _TYPES.get(get_origin(hint) or hint, "a table of texts")


def _field_docs(cls: type) -> dict[str, str]:
    """Return the docstring below each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


# ------------------------------------------------------------------------------------------------------------ commands


def commands(command: click.Command = cli, name: str = "turnout") -> Iterator[tuple[str, click.Command]]:
    """Yield name and command of everything that can be run."""
    if isinstance(command, click.Group):
        for each, below in command.commands.items():
            yield from commands(below, f"{name} {each}")
    elif not command.hidden:
        yield name, command.command if isinstance(command, LazyCommand) else command
        for each, verb in (command.verbs if isinstance(command, LazyCommand) else {}).items():
            yield from commands(verb, f"{name} {each}")


def _commands() -> str:
    known = dict(commands())
    counts = Counter(_option(each) for command in known.values() for each in _options(command))
    shared = {text for text, number in counts.items() if number >= _SHARED}
    blocks = ["## Options of many commands\n\n" + "\n".join(text for text in counts if text in shared)]
    for name, command in known.items():
        arguments = [each.make_metavar(click.Context(command)) for each in command.params if _is_argument(each)]
        blocks.append(f"## {name}")
        if arguments:
            blocks.append(f"`{' '.join([name, *arguments])}`")
        blocks.append(_prose(command.help or ""))
        own = [text for each in _options(command) if (text := _option(each)) not in shared]
        if own:
            blocks.append("\n".join(own))
        common = [f"`{each.opts[-1]}`" for each in _options(command) if _option(each) in shared]
        if len(common) > 1:  # each has --env-dir
            blocks.append(f"Also {', '.join(common)}: see [above](#options-of-many-commands).")
    return "\n\n".join(blocks) + "\n"


def _is_argument(parameter: click.Parameter) -> bool:
    return isinstance(parameter, click.Argument)


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option)]


def _option(option: click.Option) -> str:
    """Return an option as an item of a list: its name, what it takes, its default, its help."""
    if option.is_flag:
        kind = ""
    elif isinstance(option.type, click.Choice):
        kind = " " + ", ".join(f"`{each}`" for each in option.type.choices)
    elif isinstance(option.type, click.IntRange | click.FloatRange) and option.type.max is not None:
        kind = f" {option.type.min or 0:g} to {option.type.max:g}"
    else:
        kind = ""
    default = option.default if isinstance(option.default, str | int | float | Path) and not option.is_flag else None
    notes = [kind.strip(), "" if default is None else f"default `{default}`", "required" * option.required]
    said = f" ({'; '.join(each for each in notes if each)})" if any(notes) else ""
    return _prose(f"- `{option.opts[-1]}`{said}: {option.help}", "  ")


# -------------------------------------------------------------------------------------------------------------- proofs


def proven(tests: Path) -> dict[str, list[str]]:
    """Return id → the tests with that id in their mark `proves`, as `file::test`, in the order of files."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        text = path.read_text("utf-8")
        marked = re.findall(r"^@pytest\.mark\.proves\(([^)]*)\)\n(?:@.*\n)*def (\w+)", text, re.MULTILINE)
        assert len(marked) == text.count("\n@pytest.mark.proves("), f"{path}: no test follows its mark"
        for ids, test in marked:
            for each in re.findall(r'"(\w+)"', ids):
                found.setdefault(each, []).append(f"{path.relative_to(tests.parent)}::{test}")
    return found


def _proofs(proofs: Mapping[str, list[str]], letters: str) -> str:
    ids = sorted((each for each in proofs if each[0] in letters), key=lambda each: (each[0], int(each[1:])))
    return "".join(f"- {each}: {', '.join(f'`{place}`' for place in proofs[each])}\n" for each in ids)


# --------------------------------------------------------------------------------------------------------------- prose


def _prose(text: str, indent: str = "") -> str:
    """Return a help text or docstring as paragraphs of Markdown, with links to the documents that it names."""
    linked = re.sub(r"docs/([\w/.-]+\.md)(#[\w-]+)?", r"[\1](\1\2)", inspect.cleandoc(text))
    whole = re.sub(r"`[^`]*`|\[[^\]]*\]", lambda span: span[0].replace(" ", "\0"), linked)  # code stays on one line
    wrap = textwrap.TextWrapper(118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(wrap.fill, re.split(r"\n\s*\n", whole))).replace("\0", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
