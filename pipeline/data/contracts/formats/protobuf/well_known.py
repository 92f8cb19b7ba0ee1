"""The files that every runtime of protobuf has: definitions leave them out."""

from collections.abc import Mapping
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FileDescriptor

WELL_KNOWN_FILES: Final[Mapping[str, FileDescriptor]] = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        source_context_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
        type_pb2,
        api_pb2,
        descriptor_pb2,
    )
}
