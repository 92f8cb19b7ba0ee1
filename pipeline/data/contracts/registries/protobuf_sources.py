"""Protobuf files as registries keep them, as text or as base64 of a FileDescriptorProto, made into descriptors.

Text is compiled by protoc in a process of its own, which sees only the given files and `google/protobuf`.
"""

import base64
import re
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from pipeline.base.errors import Refused, Transient, first_line
from pipeline.base.names import shown
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.registries.equal_names import MARK, as_given, told_apart

MAX_MESSAGES: Final = 256
"""Most messages of one file that have an index path; those of the outer levels come first."""

_COMPILE_SECONDS: Final = 20
_PATH: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_MAX_PATH: Final = 200  # characters: folders and files have limits
_BUILT_IN: Final = ("google/protobuf/", "google/type/", "confluent/")
_CLIENTS_FILES: Final[Mapping[str, str]] = {  # Confluent's clients never send these as references
    **{
        f"google/type/{name}.proto": f"google.type.{name}_pb2"
        for name in (
            *("calendar_period", "color", "date", "datetime", "dayofweek", "expr", "fraction", "latlng", "money"),
            *("month", "postal_address", "quaternion", "timeofday"),
        )
    },
    "confluent/meta.proto": "confluent_kafka.schema_registry.confluent.meta_pb2",
    "confluent/type/decimal.proto": "confluent_kafka.schema_registry.confluent.type.decimal_pb2",
    "confluent/type/variant.proto": "confluent_kafka.schema_registry.confluent.type.variant_pb2",
    "confluent/types/decimal.proto": "confluent_kafka.schema_registry.confluent.types.decimal_pb2",
}
_MAX_RUNS: Final = 8  # of protoc, each of which names about 40 values of enums whose names JSON takes for equal
_OVER_A_LIMIT: Final = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGXCPU, -signal.SIGXFSZ)
# Its limits: 20 seconds of a processor, 1 GiB of memory, 32 MiB in a file. The rest of the command line is protoc's.
_PROTOC: Final = """
import os, resource, sys
for kind, most in ((resource.RLIMIT_CPU, 20), (resource.RLIMIT_AS, 1 << 30), (resource.RLIMIT_FSIZE, 1 << 25)):
    resource.setrlimit(kind, (most, most))
import grpc_tools
from grpc_tools import protoc
well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
sys.exit(protoc.main(["protoc", "-I.", "-I" + well_known, *sys.argv[1:]]))
"""


def is_built_in(name: str) -> bool:
    """Return whether every client has this file, so that registries do not keep it."""
    return name.startswith(_BUILT_IN)


def serialized(text: str) -> FileDescriptorProto | None:
    """Return a file that a registry keeps as base64 of its descriptor; None where the text is something else."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (ValueError, DecodeError):
        return None


def descriptor_set(main: str, imports: Mapping[str, str]) -> FileDescriptorSet:
    """Return a file and its imports, dependencies first, itself last; the same texts give the same set.

    An import that no file needs is there too: it may define extensions.

    The file's own name is replaced: it differs between clients, and registries return it or not.

    Args:
        main: the file, as text or base64.
        imports: its imports and theirs, by the name that imports them, without the built-in ones.

    Raises:
        Refused: a file is not valid, or an import is missing.
        Transient: the compiler is not installed, did not end in time, was killed, or found no room for its files.
    """
    for name in imports:
        if len(name) > _MAX_PATH or not _PATH.fullmatch(name):
            raise Refused(f"The schema refers to a file {shown(name)}, which is no name of a .proto file.")
    own = "payload.proto"
    while own in imports:
        own = f"payload_{own}"
    given = {own: main, **{name: text for name, text in imports.items() if not is_built_in(name)}}
    files, texts = dict[str, FileDescriptorProto](), dict[str, str]()
    for name, text in given.items():
        file = serialized(text)
        if file is None:
            texts[name] = text
        else:
            file.name = name
            for imported in file.dependency:
                _checked(imported)
            files[name] = file
    files |= _clients_files(files.values(), texts.values())
    if texts:
        files |= {file.name: file for file in _compiled(texts, files.values())}
    return FileDescriptorSet(file=_ordered([own, *sorted(imports.keys() & files.keys())], files))


def message_paths(file: FileDescriptorProto) -> dict[tuple[int, ...], str]:
    """Return the full name of each message by its index path: its place in the file, or in its message.

    Confluent's client for Python counts all nested messages, also the entries of maps; the one for Java does not. What
    means another message to each is left out: its rows are refused. Entries of maps have no path here.

    Raises:
        Refused: a name is no text.
    """
    as_python = dict(islice(_messages(file, counts_entries=True), MAX_MESSAGES))
    as_java = dict(islice(_messages(file, counts_entries=False), MAX_MESSAGES))
    return {path: name for path, name in (as_java | as_python).items() if as_java.get(path, name) == name}


def only_message(file: FileDescriptorProto, wanted: str | None) -> str:
    """Return the message of payloads that do not say which one they are: the wanted one, or the only one.

    Raises:
        Refused: the file has not this one, or several.
    """
    names = [name for _, name in islice(_messages(file, counts_entries=True), MAX_MESSAGES)]
    if wanted is not None:
        if wanted not in names:
            raise Refused(f"The schema has no message {shown(wanted)}, which the source's setting message names.")
        return wanted
    if len(file.message_type) != 1:
        raise Refused(f"The schema has {len(file.message_type)} messages. Name one in the source's setting message.")
    return names[0]


def _messages(file: FileDescriptorProto, *, counts_entries: bool) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the messages, level by level."""
    package = _checked(file.package)
    prefix = f"{package}." if package else ""
    waiting = deque[tuple[tuple[int, ...], str, DescriptorProto]]()
    waiting.extend(((place,), prefix, message) for place, message in enumerate(file.message_type))
    while waiting:
        path, within, message = waiting.popleft()
        name = within + _checked(message.name)
        yield path, name
        counted = [each for each in message.nested_type if counts_entries or not _is_map_entry(each)]
        waiting.extend(
            ((*path, place), f"{name}.", nested) for place, nested in enumerate(counted) if not _is_map_entry(nested)
        )


def _is_map_entry(message: DescriptorProto) -> bool:
    return message.options.map_entry


def _checked(name: object) -> str:
    """Return a name of a descriptor; protobuf gives bytes where it is not UTF-8."""
    if not isinstance(name, str):
        raise Refused("The schema has names that are no UTF-8.")
    return name


def _clients_files(files: Iterable[FileDescriptorProto], texts: Iterable[str]) -> dict[str, FileDescriptorProto]:
    """Return the files beside `google/protobuf` that clients have and these need."""
    wanted = [name for file in files for name in file.dependency if name in _CLIENTS_FILES]
    wanted += [name for text in texts for name in _CLIENTS_FILES if name in text]
    found = dict[str, FileDescriptorProto]()
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _clients_file(name)
            wanted += [each for each in found[name].dependency if each in _CLIENTS_FILES]
    return found


@lru_cache(maxsize=len(_CLIENTS_FILES))
def _clients_file(name: str) -> FileDescriptorProto:
    file = FileDescriptorProto()
    import_module(_CLIENTS_FILES[name]).DESCRIPTOR.CopyToProto(file)
    return file


def _ordered(roots: Iterable[str], files: Mapping[str, FileDescriptorProto]) -> list[FileDescriptorProto]:
    """Return files with their imports, those first that others need, the first root last; no `google/protobuf`."""
    ordered, opened, waiting = dict[str, FileDescriptorProto](), set[str](), [*roots]
    while waiting:
        name = waiting[-1]
        if name in opened:
            ordered.setdefault(waiting.pop(), files[name])
            continue
        if name not in files:
            raise Refused(f"The schema imports {shown(name)}, which is not among its references.")
        opened.add(name)
        waiting += [
            each
            for each in reversed(files[name].dependency)
            if each not in opened and not each.startswith("google/protobuf/")
        ]
    return list(ordered.values())


def _compiled(texts: Mapping[str, str], known: Collection[FileDescriptorProto]) -> Sequence[FileDescriptorProto]:
    """Compile texts, which may import each other and what is known."""
    if find_spec("grpc_tools") is None:  # no requirement of the wheel: its own would replace those of a runtime
        raise Transient(
            "The compiler of .proto files is not installed on this machine. Install the package grpcio-tools there, in "
            "the version of its grpcio."
        )
    try:
        with tempfile.TemporaryDirectory(prefix="turnout-protoc-") as made:
            folder = Path(made)
            first = code, said = _run(folder, texts, known)
            given = texts
            for _ in range(0 if any(MARK in text for text in texts.values()) else _MAX_RUNS):
                if code == 0 or (apart := told_apart(given, said)) == given:
                    break
                given = apart
                code, said = _run(folder, given, known)
            if code != 0:
                raise _failed(*first, (*texts, *(file.name for file in known)))
            compiled = FileDescriptorSet.FromString((folder / "compiled").read_bytes()).file
            return compiled if given is texts else [as_given(file) for file in compiled]
    except (OSError, DecodeError) as error:
        raise Transient(f"The compiler of .proto files cannot work on this machine: {first_line(error)}") from error


def _failed(code: int, said: Sequence[str], names: Collection[str]) -> Refused | Transient:
    """Return whether the files are wrong, of which protoc names one or for which it needs too much, or the machine."""
    lines = [line for line in said if "absl::" not in line and "parser.cc" not in line]
    complaint = one_line(" ".join(lines)).strip() or f"protoc ended with {code}"
    if code in _OVER_A_LIMIT or any(line.startswith(f"{name}:") for line in lines for name in names):
        return Refused(f"The schema is no valid .proto file: {complaint}")
    return Transient(f"The compiler of .proto files failed on this machine: {complaint}")


def _run(folder: Path, texts: Mapping[str, str], known: Collection[FileDescriptorProto]) -> tuple[int, Sequence[str]]:
    """Run protoc in a folder; return how it ended and the first lines that it wrote."""
    sources = folder / "sources"
    try:
        for name, text in texts.items():
            path = sources / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    except (FileExistsError, NotADirectoryError, IsADirectoryError, UnicodeEncodeError) as error:
        # A name is a file and a folder, or a text has half a surrogate.
        raise Refused("The schema's references cannot be files beside each other.") from error
    command = [sys.executable, "-I", "-c", _PROTOC, "--descriptor_set_out=../compiled"]
    known_set = FileDescriptorSet(file=known)
    if known_set.file:
        (folder / "known").write_bytes(known_set.SerializeToString())
        command.append("--descriptor_set_in=../known")
    with (folder / "said").open("w+b") as said:
        try:
            code = subprocess.run(
                [*command, *texts],
                cwd=sources,
                env={},  # it needs none, and ours has secrets
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_COMPILE_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise Transient("The compiler of .proto files did not end in time.") from error
        said.seek(0)
        return code, said.read(10_000).decode("utf-8", "replace").splitlines()
