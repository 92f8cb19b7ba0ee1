"""Messages of whole definitions, as a producer has them: other messages of their files too, and extensions."""

from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from pipeline.data.contracts.formats.protobuf.well_known import WELL_KNOWN_FILES


def pool_of(definition: bytes) -> Any:
    """Return a pool with all files of a FileDescriptorSet, imports first, and the well-known ones."""
    pool = DescriptorPool()
    for known in WELL_KNOWN_FILES.values():
        pool.AddSerializedFile(known.serialized_pb)
    for file in FileDescriptorSet.FromString(definition).file:
        file.dependency[:] = [each for each in file.dependency if not each.endswith("_features.proto")]  # of languages
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def class_of(name: str, definition: bytes) -> Any:
    """Return the class of a message."""
    return GetMessageClass(pool_of(definition).FindMessageTypeByName(name))
