"""Values of enums whose names JSON takes for equal: protoc refuses them, registries keep them, and bytes hold numbers.

Equal are names but for case, `_` and the enum's name before them. protoc has no option for it, so such a value has a
name of its own while protoc runs.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Final

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

_COMPLAINT: Final = re.compile(r"(.+):(\d+):(\d+): Enum name (\w+) has the same name as ")
MARK: Final = "__turnout_"
"""Follows a value's name while protoc runs; files that have it themselves are left alone."""
_TAB: Final = 8


def told_apart(texts: Mapping[str, str], said: Sequence[str]) -> Mapping[str, str]:
    """Return files by name in which each value of which protoc complains has a name of its own.

    Args:
        texts: the files that protoc read; those that it returned before, or the first ones.
        said: the lines that protoc wrote.
    """
    lines = {name: text.encode().split(b"\n") for name, text in texts.items()}
    numbers = count(sum(text.count(MARK) for text in texts.values()))
    found = [match.groups() for match in map(_COMPLAINT.match, said) if match is not None]
    for name, line, column, value in sorted(found, key=lambda each: -int(each[2])):  # a line from its end
        if name in lines and 0 < int(line) <= len(lines[name]):
            given = lines[name][int(line) - 1]
            end = _offset(given, int(column) - 1) + len(value)
            if given[:end].endswith(value.encode()):
                lines[name][int(line) - 1] = given[:end] + f"{MARK}{next(numbers)}".encode() + given[end:]
    return {name: b"\n".join(each).decode() for name, each in lines.items()}


def as_given(file: FileDescriptorProto) -> FileDescriptorProto:
    """Return a compiled file in which values of enums have their own names again."""
    waiting: list[FileDescriptorProto | DescriptorProto] = [file]
    while waiting:
        each = waiting.pop()
        for enum in each.enum_type:
            for value in enum.value:
                value.name = value.name.partition(MARK)[0]
        waiting += each.message_type if isinstance(each, FileDescriptorProto) else each.nested_type
    return file


def _offset(line: bytes, column: int) -> int:
    """Return the place of a column of protoc's: it counts bytes, and a tab up to the next multiple of eight."""
    at = 0
    for place, byte in enumerate(line):
        if at >= column:
            return place
        at += _TAB - at % _TAB if byte == ord("\t") else 1
    return len(line)
