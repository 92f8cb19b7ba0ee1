"""Pools that definitions share: each unit is in memory once, however many types of a file have it.

A pool holds units of any definitions that agree: the same name means the same bytes there. The Arrow parser has copies
of its own: one of them serves all the types that are expected together, and goes with the last decoder that uses it.
"""

import hashlib
from collections import deque
from collections.abc import Iterable
from threading import Lock
from typing import Any, Final
from weakref import WeakValueDictionary

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from ptars import HandlerPool, PtarsConfig

from pipeline.data.contracts.formats.protobuf.units import FOLDER
from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES

_MAX_POOLS: Final = 16  # to which units are added; versions of a type never agree
_MAX_UNITS: Final = 4_096  # of a pool

_CONFIG: Final = PtarsConfig(
    timestamp_unit="us",
    duration_unit="us",
    time_unit="us",
    list_nullable=True,
    map_nullable=True,
    list_value_nullable=True,
    map_value_nullable=True,
    enum_repr="string",
    list_value_name="element",
)


class _Shared:
    """A pool with its units."""

    def __init__(self) -> None:
        self.pool = DescriptorPool()
        self.digests: dict[str, bytes] = {}  # by name
        self.arrow: WeakValueDictionary[str, HandlerPool] = WeakValueDictionary()  # by name of a payload's unit
        self.waiting: dict[str, Descriptor] = {}  # payloads' messages by unit: the next parser here is of all of them

    def takes(self, units: dict[str, bytes]) -> bool:
        """Return whether none of these units differs from one of the pool."""
        if len(self.digests) > _MAX_UNITS:
            return False
        return all(self.digests.get(name, digest) == digest for name, digest in units.items())


_lock: Final = Lock()
_open: Final[deque[_Shared]] = deque(maxlen=_MAX_POOLS)  # the newest first


def pooled(files: Iterable[FileDescriptorProto]) -> DescriptorPool:
    """Return a pool with these files, imports first: a shared one if all are units, and none is an extension.

    An extension in a shared pool would be one of every definition there.

    Raises:
        TypeError: they do not fit together.
    """
    contents = {file.name: (file, file.SerializeToString(deterministic=True)) for file in files}
    if not all(file.name.startswith(FOLDER) and not file.extension for file, _ in contents.values()):
        return _filled(DescriptorPool(), contents.values())
    digests = {name: hashlib.sha256(content).digest() for name, (_, content) in contents.items()}
    with _lock:
        for shared in [each for each in _open if each.takes(digests)]:
            try:
                return _added(shared, contents, digests)
            except TypeError:  # they share a name of another kind, such as that of an enum's value
                continue
        shared = _Shared()
        made = _added(shared, contents, digests)
        _open.appendleft(shared)
        return made


def _added(
    shared: _Shared, contents: dict[str, tuple[FileDescriptorProto, bytes]], digests: dict[str, bytes]
) -> DescriptorPool:
    for name, content in contents.items():
        if name not in shared.digests:
            _filled(shared.pool, [content])
            shared.digests[name] = digests[name]
    return shared.pool


def _filled(pool: DescriptorPool, contents: Iterable[tuple[FileDescriptorProto, bytes]]) -> DescriptorPool:
    for file, content in contents:
        for name in file.dependency:
            if name in WELL_KNOWN_FILES:
                _add_well_known(pool, WELL_KNOWN_FILES[name])
        pool.AddSerializedFile(content)
    return pool


def _add_well_known(pool: DescriptorPool, file: FileDescriptor) -> None:
    for imported in file.dependencies:
        _add_well_known(pool, imported)
    pool.AddSerializedFile(file.serialized_pb)  # adding a file again changes nothing


def expect(message: Descriptor) -> None:
    """Let the next Arrow parser that is made in the message's pool read this message, too."""
    if (shared := _shared(message)) is not None and message.file.name not in shared.arrow:
        shared.waiting[message.file.name] = message


def arrow_parser(message: Descriptor) -> tuple[HandlerPool, Any]:
    """Return the Arrow parser of a message, and what to keep as long as it is used, which others may share."""
    shared = _shared(message)
    if shared is None or message.file.name not in {*shared.arrow, *shared.waiting}:
        alone = HandlerPool([message.file], _CONFIG)
        return alone, alone.get_for_message(message)
    with _lock:
        held = shared.arrow.get(message.file.name)
        if held is None:
            expected = {**shared.waiting, message.file.name: message}
            held = HandlerPool([each.file for each in expected.values()], _CONFIG)
            shared.arrow.update(dict.fromkeys(expected, held))
            shared.waiting.clear()
    return held, held.get_for_message(message)


def _shared(message: Descriptor) -> _Shared | None:
    return next((each for each in list(_open) if each.pool is message.file.pool), None)
