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
    __slots__ = ("acked", "refused", "log", "topic_id")
    ACKED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    acked: _containers.RepeatedCompositeFieldContainer[AckedRange]
    refused: _containers.RepeatedCompositeFieldContainer[Refusal]
    log: _containers.RepeatedCompositeFieldContainer[LogRange]
    topic_id: str
    def __init__(self, acked: _Optional[_Iterable[_Union[AckedRange, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Refusal, _Mapping]]] = ..., log: _Optional[_Iterable[_Union[LogRange, _Mapping]]] = ..., topic_id: _Optional[str] = ...) -> None: ...

class AckedRange(_message.Message):
    __slots__ = ("first_seq", "last_seq")
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    first_seq: int
    last_seq: int
    def __init__(self, first_seq: _Optional[int] = ..., last_seq: _Optional[int] = ...) -> None: ...

class LogRange(_message.Message):
    __slots__ = ("partition", "first_offset", "last_offset", "file", "version")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    partition: int
    first_offset: int
    last_offset: int
    file: str
    version: int
    def __init__(self, partition: _Optional[int] = ..., first_offset: _Optional[int] = ..., last_offset: _Optional[int] = ..., file: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("seq", "reason", "detail", "field", "event_id", "rules")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    seq: int
    reason: str
    detail: str
    field: str
    event_id: str
    rules: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, seq: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., field: _Optional[str] = ..., event_id: _Optional[str] = ..., rules: _Optional[_Iterable[str]] = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("token", "since")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    since: _containers.RepeatedCompositeFieldContainer[LogPosition]
    def __init__(self, token: _Optional[bytes] = ..., since: _Optional[_Iterable[_Union[LogPosition, _Mapping]]] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("landed", "refused", "replayed", "token", "skipped")
    LANDED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    landed: _containers.RepeatedCompositeFieldContainer[GameThrough]
    refused: _containers.RepeatedCompositeFieldContainer[RefusedRow]
    replayed: _containers.RepeatedCompositeFieldContainer[ReplayedRow]
    token: bytes
    skipped: _containers.RepeatedCompositeFieldContainer[SkippedRange]
    def __init__(self, landed: _Optional[_Iterable[_Union[GameThrough, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[RefusedRow, _Mapping]]] = ..., replayed: _Optional[_Iterable[_Union[ReplayedRow, _Mapping]]] = ..., token: _Optional[bytes] = ..., skipped: _Optional[_Iterable[_Union[SkippedRange, _Mapping]]] = ...) -> None: ...

class LogPosition(_message.Message):
    __slots__ = ("partition", "offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    offset: int
    def __init__(self, partition: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class GameThrough(_message.Message):
    __slots__ = ("games", "through", "topic_id", "former_topic_ids")
    GAMES_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FORMER_TOPIC_IDS_FIELD_NUMBER: _ClassVar[int]
    games: _containers.RepeatedScalarFieldContainer[str]
    through: _containers.RepeatedCompositeFieldContainer[LogPosition]
    topic_id: str
    former_topic_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, games: _Optional[_Iterable[str]] = ..., through: _Optional[_Iterable[_Union[LogPosition, _Mapping]]] = ..., topic_id: _Optional[str] = ..., former_topic_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SkippedRange(_message.Message):
    __slots__ = ("topic_id", "partition", "first", "last")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    topic_id: str
    partition: int
    first: int
    last: int
    def __init__(self, topic_id: _Optional[str] = ..., partition: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class RefusedRow(_message.Message):
    __slots__ = ("game", "event_id", "partition", "offset", "reason", "detail", "field", "file")
    GAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    game: str
    event_id: str
    partition: int
    offset: int
    reason: str
    detail: str
    field: str
    file: str
    def __init__(self, game: _Optional[str] = ..., event_id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., field: _Optional[str] = ..., file: _Optional[str] = ...) -> None: ...

class ReplayedRow(_message.Message):
    __slots__ = ("game", "event_id", "partition", "offset", "file")
    GAME_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    game: str
    event_id: str
    partition: int
    offset: int
    file: str
    def __init__(self, game: _Optional[str] = ..., event_id: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., file: _Optional[str] = ...) -> None: ...
