# mypy: disable-error-code="type-arg"
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LevelPlayed(_message.Message):
    __slots__ = ("player_id", "round", "level", "outcome", "score", "ended_at", "board", "moves", "duration_seconds", "first_try", "boosters", "country")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OUTCOME_UNSPECIFIED: _ClassVar[LevelPlayed.Outcome]
        OUTCOME_WON: _ClassVar[LevelPlayed.Outcome]
        OUTCOME_LOST: _ClassVar[LevelPlayed.Outcome]
        OUTCOME_QUIT: _ClassVar[LevelPlayed.Outcome]
    OUTCOME_UNSPECIFIED: LevelPlayed.Outcome
    OUTCOME_WON: LevelPlayed.Outcome
    OUTCOME_LOST: LevelPlayed.Outcome
    OUTCOME_QUIT: LevelPlayed.Outcome
    class Board(_message.Message):
        __slots__ = ("width", "height", "seed")
        WIDTH_FIELD_NUMBER: _ClassVar[int]
        HEIGHT_FIELD_NUMBER: _ClassVar[int]
        SEED_FIELD_NUMBER: _ClassVar[int]
        width: int
        height: int
        seed: int
        def __init__(self, width: _Optional[int] = ..., height: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...
    class BoostersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PLAYER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    BOARD_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    DURATION_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TRY_FIELD_NUMBER: _ClassVar[int]
    BOOSTERS_FIELD_NUMBER: _ClassVar[int]
    COUNTRY_FIELD_NUMBER: _ClassVar[int]
    player_id: str
    round: int
    level: int
    outcome: LevelPlayed.Outcome
    score: int
    ended_at: _timestamp_pb2.Timestamp
    board: LevelPlayed.Board
    moves: _containers.RepeatedScalarFieldContainer[int]
    duration_seconds: float
    first_try: bool
    boosters: _containers.ScalarMap[str, int]
    country: str
    def __init__(self, player_id: _Optional[str] = ..., round: _Optional[int] = ..., level: _Optional[int] = ..., outcome: _Optional[_Union[LevelPlayed.Outcome, str]] = ..., score: _Optional[int] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., board: _Optional[_Union[LevelPlayed.Board, _Mapping]] = ..., moves: _Optional[_Iterable[int]] = ..., duration_seconds: _Optional[float] = ..., first_try: _Optional[bool] = ..., boosters: _Optional[_Mapping[str, int]] = ..., country: _Optional[str] = ...) -> None: ...
