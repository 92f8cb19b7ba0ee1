"""Checks that only the modules listed in pyproject.toml touch files of this machine; all others ask `Location`.

Reads names, not types: `exists` and a `read_text` without an encoding pass, as a `Location` has both, and so does a
path that is handed to a library.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_MODULES = {"durable_file", "fcntl", "private_files", "shutil", "sqlite3", "tempfile"}
_METHODS = {
    "chmod", "glob", "hardlink_to", "is_dir", "is_file", "iterdir", "lstat", "mkdir", "readlink", "read_bytes",
    "rename", "rglob", "rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
_OF_OS = {
    "access", "chmod", "link", "listdir", "lstat", "makedirs", "mkdir", "open", "path.exists", "path.getmtime",
    "path.getsize", "path.isdir", "path.isfile", "path.lexists", "readlink", "remove", "rename", "replace", "rmdir",
    "scandir", "stat", "statvfs", "symlink", "truncate", "unlink", "utime", "walk",
}  # fmt: skip


def touches(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each import and call of a module that touches a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            named = {part for each in (origin, *(each.name for each in node.names)) for part in each.split(".")}
            yield from ((node.lineno, name) for name in sorted(named & _MODULES))
        elif isinstance(node, ast.Call) and _is_touch(node):
            yield node.lineno, ast.unparse(node.func)


def _is_touch(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return isinstance(call.func, ast.Name) and call.func.id == "open"
    of, _, name = ast.unparse(call.func).partition(".")
    if of == "os":
        return name in _OF_OS
    first = call.args[0] if call.args else None
    match call.func.attr:
        case "read_text":
            return bool(call.args or call.keywords)
        case "replace":  # of a text it has two arguments
            return len(call.args) == 1 and not call.keywords
        case "open":  # of others it has an object or nothing, not a mode
            return isinstance(first, ast.Constant) and isinstance(first.value, str)
        case method:
            return method in _METHODS


def problems() -> Iterator[str]:
    """Yield what touches a file outside the list, and what the list has in vain."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))
    unused = dict(settings["tool"]["turnout"]["machine-files"])
    listed = set(unused)
    for file in sorted((_ROOT / "pipeline").rglob("*.py")):
        module = ".".join(file.relative_to(_ROOT).with_suffix("").parts)
        entry = next((each for each in listed if f"{module}.".startswith(f"{each}.")), None)
        for line, name in touches(ast.parse(file.read_text("utf-8"))):
            unused.pop(entry or "", None)
            if entry is None:
                yield f"{file.relative_to(_ROOT)}:{line}: {name} touches a file of this machine"
    yield from (f"{entry} touches no file of this machine: remove it from the list" for entry in unused)


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) if found else "only the listed modules touch files of this machine")
    sys.exit(bool(found))
