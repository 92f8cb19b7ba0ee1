"""Generates the Python modules of every `.proto` file below this folder: `python -m protos.generate [--check]`.

Generated modules lie beside their source and are never edited. The compiler runs from the project's root, so that
they import each other as `protos.…`, while the names on the wire stay those of the `package` lines.
"""

import re
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # it ships no types

_ROOT = Path(__file__).resolve().parent.parent
_SUFFIXES = ("_pb2.py", "_pb2.pyi")
_SINCE = 6, 31, 1
"""The oldest version of protobuf that loads the modules: what the compilers of grpcio-tools 1.76.0 and 1.85.1 write
differs by the version alone. A Databricks runtime's protobuf is older than our compiler's, and must stay.
"""
_VERSIONS = (
    (re.compile(rb"Protobuf Python Version: \d+\.\d+\.\d+\n"), b"Protobuf Python Version: %d.%d.%d\n"),
    (re.compile(rb"PUBLIC,\n    \d+,\n    \d+,\n    \d+,\n"), b"PUBLIC,\n    %d,\n    %d,\n    %d,\n"),
)
_STUB_HEAD = b'# mypy: disable-error-code="type-arg"\n'  # the compiler writes bare `Mapping` into its stubs


def generate(root: Path) -> dict[Path, bytes]:
    """Return what the `.proto` files below `root`/protos compile to: content by path relative to `root`.

    Raises:
        ValueError: a file does not compile, as the compiler writes on stderr, or its module names no version.
    """
    sources = sorted(str(path.relative_to(root)) for path in (root / "protos").rglob("*.proto"))
    well_known = str(files("grpc_tools") / "_proto")
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{root}", f"-I{well_known}", f"--python_out={folder}", f"--pyi_out={folder}"]
        if protoc.main([*arguments, *sources]) != 0:
            raise ValueError(f"the .proto files below {root / 'protos'} do not compile")
        made = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return {
            path.relative_to(folder): _STUB_HEAD + path.read_bytes() if path.suffix == ".pyi" else _since(path)
            for path in made
        }


def _since(module: Path) -> bytes:
    """Return a generated module that asks for the oldest protobuf that can load it.

    Raises:
        ValueError: the module does not say its version as the compilers that were tried say it.
    """
    content = module.read_bytes()
    for written, wanted in _VERSIONS:
        content, found = written.subn(wanted % _SINCE, content)
        if found != 1:
            raise ValueError(f"{module.name} does not name its version of protobuf as before: see _VERSIONS")
    return content


def differences(root: Path) -> dict[Path, bytes | None]:
    """Return what must be written below `root` so that the generated files are current; None means delete."""
    wanted = generate(root)
    present = {path.relative_to(root) for path in (root / "protos").rglob("*_pb2.py*") if path.name.endswith(_SUFFIXES)}
    stale: dict[Path, bytes | None] = dict.fromkeys(sorted(present - wanted.keys()))
    current = {path: (root / path).read_bytes() for path in present}
    return stale | {path: content for path, content in wanted.items() if current.get(path) != content}


def main(arguments: list[str]) -> int:
    """Write the generated files, or with `--check` only tell which would change; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m protos.generate [--check]", file=sys.stderr)
        return 2
    changes = differences(_ROOT)
    for path, content in changes.items():
        print(f"{'would change' if arguments else 'wrote' if content is not None else 'removed'}: {path}")
        if arguments:
            continue
        if content is None:
            (_ROOT / path).unlink()
        else:
            (_ROOT / path).write_bytes(content)
    return 1 if arguments and changes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
