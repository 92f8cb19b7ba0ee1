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

class LapDriven(_message.Message):
    __slots__ = ("player_id", "round", "track", "lap", "lap_time_ms", "car", "sector_seconds", "ended_at", "tyre", "personal_best")
    class Tyre(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYRE_UNSPECIFIED: _ClassVar[LapDriven.Tyre]
        TYRE_SOFT: _ClassVar[LapDriven.Tyre]
        TYRE_HARD: _ClassVar[LapDriven.Tyre]
    TYRE_UNSPECIFIED: LapDriven.Tyre
    TYRE_SOFT: LapDriven.Tyre
    TYRE_HARD: LapDriven.Tyre
    class Car(_message.Message):
        __slots__ = ("model", "number")
        MODEL_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        model: str
        number: int
        def __init__(self, model: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...
    PLAYER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    TRACK_FIELD_NUMBER: _ClassVar[int]
    LAP_FIELD_NUMBER: _ClassVar[int]
    LAP_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CAR_FIELD_NUMBER: _ClassVar[int]
    SECTOR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    TYRE_FIELD_NUMBER: _ClassVar[int]
    PERSONAL_BEST_FIELD_NUMBER: _ClassVar[int]
    player_id: str
    round: int
    track: str
    lap: int
    lap_time_ms: int
    car: LapDriven.Car
    sector_seconds: _containers.RepeatedScalarFieldContainer[float]
    ended_at: _timestamp_pb2.Timestamp
    tyre: LapDriven.Tyre
    personal_best: bool
    def __init__(self, player_id: _Optional[str] = ..., round: _Optional[int] = ..., track: _Optional[str] = ..., lap: _Optional[int] = ..., lap_time_ms: _Optional[int] = ..., car: _Optional[_Union[LapDriven.Car, _Mapping]] = ..., sector_seconds: _Optional[_Iterable[float]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., tyre: _Optional[_Union[LapDriven.Tyre, str]] = ..., personal_best: _Optional[bool] = ...) -> None: ...
