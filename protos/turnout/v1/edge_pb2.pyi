# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PublishRequest(_message.Message):
    __slots__ = ("first_seq", "wrappers")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    WRAPPERS_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    wrappers: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, first_seq: _Optional[int] = ..., wrappers: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("acked", "refused", "log")
    ACKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedCompositeFieldContainer[AckedRange]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    log: _containers.RepeatedCompositeFieldContainer[LogRange]
    def __init__(self, acked: _Optional[_Iterable[_Union[AckedRange, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., log: _Optional[_Iterable[_Union[LogRange, _Mapping]]] = ...) -> None: ...

class AckedRange(_message.Message):
    __slots__ = ("first_seq", "last_seq")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    last_seq: int
    def __init__(self, first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ...) -> None: ...

class LogRange(_message.Message):
    __slots__ = ("partition", "first_offset", "last_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    first_offset: int
    last_offset: int
    def __init__(self, partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("seq", "reason", "detail", "field", "event_id")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    seq: int
    reason: str
    detail: str
    field: str
    event_id: str
    def __init__(self, seq: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., field: _Optional[str] = ..., event_id: _Optional[str] = ...) -> None: ...
