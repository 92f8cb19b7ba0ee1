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

class MatchPlayed(_message.Message):
    __slots__ = ("player_id", "round", "arena", "kills", "deaths", "weapon", "last_position", "ended_at", "hits", "assists", "team", "accuracy", "rank_change", "killed_by", "survived", "server_tick", "badges", "ping_ms")
    class Weapon(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WEAPON_UNSPECIFIED: _ClassVar[MatchPlayed.Weapon]
        WEAPON_RIFLE: _ClassVar[MatchPlayed.Weapon]
        WEAPON_BOW: _ClassVar[MatchPlayed.Weapon]
        WEAPON_HAMMER: _ClassVar[MatchPlayed.Weapon]
    WEAPON_UNSPECIFIED: MatchPlayed.Weapon
    WEAPON_RIFLE: MatchPlayed.Weapon
    WEAPON_BOW: MatchPlayed.Weapon
    WEAPON_HAMMER: MatchPlayed.Weapon
    class Team(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TEAM_UNSPECIFIED: _ClassVar[MatchPlayed.Team]
        TEAM_RED: _ClassVar[MatchPlayed.Team]
        TEAM_BLUE: _ClassVar[MatchPlayed.Team]
    TEAM_UNSPECIFIED: MatchPlayed.Team
    TEAM_RED: MatchPlayed.Team
    TEAM_BLUE: MatchPlayed.Team
    class Position(_message.Message):
        __slots__ = ("x", "y", "z")
        X_FIELD_NUMBER: _ClassVar[int]
        Y_FIELD_NUMBER: _ClassVar[int]
        Z_FIELD_NUMBER: _ClassVar[int]
        x: float
        y: float
        z: float
        def __init__(self, x: _Optional[float] = ..., y: _Optional[float] = ..., z: _Optional[float] = ...) -> None: ...
    class Hit(_message.Message):
        __slots__ = ("target_id", "damage", "critical")
        TARGET_ID_FIELD_NUMBER: _ClassVar[int]
        DAMAGE_FIELD_NUMBER: _ClassVar[int]
        CRITICAL_FIELD_NUMBER: _ClassVar[int]
        target_id: str
        damage: int
        critical: bool
        def __init__(self, target_id: _Optional[str] = ..., damage: _Optional[int] = ..., critical: _Optional[bool] = ...) -> None: ...
    class AccuracyEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    PLAYER_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    KILLS_FIELD_NUMBER: _ClassVar[int]
    DEATHS_FIELD_NUMBER: _ClassVar[int]
    WEAPON_FIELD_NUMBER: _ClassVar[int]
    LAST_POSITION_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    ASSISTS_FIELD_NUMBER: _ClassVar[int]
    TEAM_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    RANK_CHANGE_FIELD_NUMBER: _ClassVar[int]
    KILLED_BY_FIELD_NUMBER: _ClassVar[int]
    SURVIVED_FIELD_NUMBER: _ClassVar[int]
    SERVER_TICK_FIELD_NUMBER: _ClassVar[int]
    BADGES_FIELD_NUMBER: _ClassVar[int]
    PING_MS_FIELD_NUMBER: _ClassVar[int]
    player_id: str
    round: int
    arena: str
    kills: int
    deaths: int
    weapon: MatchPlayed.Weapon
    last_position: MatchPlayed.Position
    ended_at: _timestamp_pb2.Timestamp
    hits: _containers.RepeatedCompositeFieldContainer[MatchPlayed.Hit]
    assists: int
    team: MatchPlayed.Team
    accuracy: _containers.ScalarMap[str, float]
    rank_change: int
    killed_by: str
    survived: bool
    server_tick: int
    badges: _containers.RepeatedScalarFieldContainer[str]
    ping_ms: float
    def __init__(self, player_id: _Optional[str] = ..., round: _Optional[int] = ..., arena: _Optional[str] = ..., kills: _Optional[int] = ..., deaths: _Optional[int] = ..., weapon: _Optional[_Union[MatchPlayed.Weapon, str]] = ..., last_position: _Optional[_Union[MatchPlayed.Position, _Mapping]] = ..., ended_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., hits: _Optional[_Iterable[_Union[MatchPlayed.Hit, _Mapping]]] = ..., assists: _Optional[int] = ..., team: _Optional[_Union[MatchPlayed.Team, str]] = ..., accuracy: _Optional[_Mapping[str, float]] = ..., rank_change: _Optional[int] = ..., killed_by: _Optional[str] = ..., survived: _Optional[bool] = ..., server_tick: _Optional[int] = ..., badges: _Optional[_Iterable[str]] = ..., ping_ms: _Optional[float] = ...) -> None: ...
