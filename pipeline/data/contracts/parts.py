"""Parts of definitions, which many definitions have in common: each is stored and pickled once. Pure."""

from typing import Final

_FILE: Final = 0x0A  # begins each file of protobuf's FileDescriptorSet: field 1, with a length


def split(definition: bytes) -> tuple[bytes, ...]:
    """Cut a definition into the files of a FileDescriptorSet; any other one is a single part.

    The parts joined are the definition.
    """
    parts, start = list[bytes](), 0
    while start < len(definition):
        end = _end(definition, start)
        if end is None:
            return (definition,)
        parts.append(definition[start:end])
        start = end
    return tuple(parts)


def _end(definition: bytes, start: int) -> int | None:
    """Return where the file ends that begins at a byte, None where none does."""
    if definition[start] != _FILE:
        return None
    length, shift = 0, 0
    for place in range(start + 1, min(start + 6, len(definition))):
        length |= (definition[place] & 0x7F) << shift
        shift += 7
        if definition[place] < 0x80:
            end = place + 1 + length
            return end if end <= len(definition) else None
    return None
