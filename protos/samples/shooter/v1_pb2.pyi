# mypy: disable-error-code="type-arg"
import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MatchPlayed(_message.Message):
    __slots__ = ("player_id", "round", "arena", "kills", "deaths", "weapon", "last_position", "ended_at")
    class Weapon(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WEAPON_UNSPECIFIED: _ClassVar[MatchPlayed.Weapon]
        WEAPON_RIFLE: _ClassVar[MatchPlayed.Weapon]
        WEAPON_BOW: _ClassVar[MatchPlayed.Weapon]
    WEAPON_UNSPECIFIED: MatchPlayed.Weapon
    WEAPON_RIFLE: MatchPlayed.Weapon
    WEAPON_BOW: MatchPlayed.Weapon
    class Position(_message.Message):
        __slots__ = ("x", "y")
        X_FIELD_NUMBER: _ClassVar[int]
        Y_FIELD_NUMBER: _ClassVar[int]
        x: float
        y: float
        def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ...) -> None: ...
    PLAYER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    KILLS_FIELD_NUMBER: _ClassVar[int]
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    WEAPON_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    player_id: str
    round: int
    arena: str
    kills: int
    deaths: int
    weapon: MatchPlayed.Weapon
    last_position: MatchPlayed.Position
    ended_at: _timestamp_pb2.Timestamp
    def __init__(self, player_id: _Optional[str] = ..., round: _Optional[int] = ..., arena: _Optional[str] = ..., kills: _Optional[int] = ..., deaths: _Optional[int] = ..., weapon: _Optional[_Union[MatchPlayed.Weapon, str]] = ..., last_position: _Optional[_Union[MatchPlayed.Position, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
