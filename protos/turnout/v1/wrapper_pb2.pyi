# mypy: disable-error-code="type-arg"
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Wrapper(_message.Message):
    __slots__ = ("game", "schema_id", "payload", "event_time", "event_id", "producer_id", "sequence")
    GAME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    EVENT_TIME_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    game: str
    schema_id: int
    payload: bytes
    event_time: _timestamp_pb2.Timestamp
    event_id: str
    producer_id: str
    sequence: int
    def __init__(self, game: _Optional[str] = ..., schema_id: _Optional[int] = ..., payload: _Optional[bytes] = ..., event_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., event_id: _Optional[str] = ..., producer_id: _Optional[str] = ..., sequence: _Optional[int] = ...) -> None: ...
