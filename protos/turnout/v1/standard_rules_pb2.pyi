# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RuledOptions(_message.Message):
    __slots__ = ("rules",)
    RULES_FIELD_NUMBER: _ClassVar[int]
    rules: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, rules: _Optional[_Iterable[bytes]] = ...) -> None: ...

class MessageRules(_message.Message):
    __slots__ = ("cel", "oneof", "cel_expression")
    CEL_FIELD_NUMBER: _ClassVar[int]
    ONEOF_FIELD_NUMBER: _ClassVar[int]
    CEL_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    cel: _containers.RepeatedScalarFieldContainer[bytes]
    oneof: _containers.RepeatedCompositeFieldContainer[OneofOfFields]
    cel_expression: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, cel: _Optional[_Iterable[bytes]] = ..., oneof: _Optional[_Iterable[_Union[OneofOfFields, _Mapping]]] = ..., cel_expression: _Optional[_Iterable[bytes]] = ...) -> None: ...

class OneofOfFields(_message.Message):
    __slots__ = ("fields",)
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    fields: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, fields: _Optional[_Iterable[str]] = ...) -> None: ...

class OneofRules(_message.Message):
    __slots__ = ("required",)
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    required: bool
    def __init__(self, required: _Optional[bool] = ...) -> None: ...

class FieldRules(_message.Message):
    __slots__ = ("float_rules", "double_rules", "int32_rules", "int64_rules", "uint32_rules", "uint64_rules", "sint32_rules", "sint64_rules", "fixed32_rules", "fixed64_rules", "sfixed32_rules", "sfixed64_rules", "bool_rules", "string_rules", "bytes_rules", "enum_rules", "repeated_rules", "map_rules", "any_rules", "duration_rules", "timestamp_rules", "field_mask_rules", "cel", "required", "ignore", "cel_expression")
    FLOAT_RULES_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_RULES_FIELD_NUMBER: _ClassVar[int]
    INT32_RULES_FIELD_NUMBER: _ClassVar[int]
    INT64_RULES_FIELD_NUMBER: _ClassVar[int]
    UINT32_RULES_FIELD_NUMBER: _ClassVar[int]
    UINT64_RULES_FIELD_NUMBER: _ClassVar[int]
    SINT32_RULES_FIELD_NUMBER: _ClassVar[int]
    SINT64_RULES_FIELD_NUMBER: _ClassVar[int]
    FIXED32_RULES_FIELD_NUMBER: _ClassVar[int]
    FIXED64_RULES_FIELD_NUMBER: _ClassVar[int]
    SFIXED32_RULES_FIELD_NUMBER: _ClassVar[int]
    SFIXED64_RULES_FIELD_NUMBER: _ClassVar[int]
    BOOL_RULES_FIELD_NUMBER: _ClassVar[int]
    STRING_RULES_FIELD_NUMBER: _ClassVar[int]
    BYTES_RULES_FIELD_NUMBER: _ClassVar[int]
    ENUM_RULES_FIELD_NUMBER: _ClassVar[int]
    REPEATED_RULES_FIELD_NUMBER: _ClassVar[int]
    MAP_RULES_FIELD_NUMBER: _ClassVar[int]
    ANY_RULES_FIELD_NUMBER: _ClassVar[int]
    DURATION_RULES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_RULES_FIELD_NUMBER: _ClassVar[int]
    FIELD_MASK_RULES_FIELD_NUMBER: _ClassVar[int]
    CEL_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FIELD_NUMBER: _ClassVar[int]
    CEL_EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    float_rules: FloatRules
    double_rules: DoubleRules
    int32_rules: VarintRules
    int64_rules: VarintRules
    uint32_rules: UnsignedRules
    uint64_rules: UnsignedRules
    sint32_rules: ZigzagRules
    sint64_rules: ZigzagRules
    fixed32_rules: Fixed32Rules
    fixed64_rules: Fixed64Rules
    sfixed32_rules: Sfixed32Rules
    sfixed64_rules: Sfixed64Rules
    bool_rules: BoolRules
    string_rules: StringRules
    bytes_rules: BytesRules
    enum_rules: EnumRules
    repeated_rules: RepeatedRules
    map_rules: bytes
    any_rules: bytes
    duration_rules: bytes
    timestamp_rules: bytes
    field_mask_rules: bytes
    cel: _containers.RepeatedScalarFieldContainer[bytes]
    required: bool
    ignore: int
    cel_expression: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, float_rules: _Optional[_Union[FloatRules, _Mapping]] = ..., double_rules: _Optional[_Union[DoubleRules, _Mapping]] = ..., int32_rules: _Optional[_Union[VarintRules, _Mapping]] = ..., int64_rules: _Optional[_Union[VarintRules, _Mapping]] = ..., uint32_rules: _Optional[_Union[UnsignedRules, _Mapping]] = ..., uint64_rules: _Optional[_Union[UnsignedRules, _Mapping]] = ..., sint32_rules: _Optional[_Union[ZigzagRules, _Mapping]] = ..., sint64_rules: _Optional[_Union[ZigzagRules, _Mapping]] = ..., fixed32_rules: _Optional[_Union[Fixed32Rules, _Mapping]] = ..., fixed64_rules: _Optional[_Union[Fixed64Rules, _Mapping]] = ..., sfixed32_rules: _Optional[_Union[Sfixed32Rules, _Mapping]] = ..., sfixed64_rules: _Optional[_Union[Sfixed64Rules, _Mapping]] = ..., bool_rules: _Optional[_Union[BoolRules, _Mapping]] = ..., string_rules: _Optional[_Union[StringRules, _Mapping]] = ..., bytes_rules: _Optional[_Union[BytesRules, _Mapping]] = ..., enum_rules: _Optional[_Union[EnumRules, _Mapping]] = ..., repeated_rules: _Optional[_Union[RepeatedRules, _Mapping]] = ..., map_rules: _Optional[bytes] = ..., any_rules: _Optional[bytes] = ..., duration_rules: _Optional[bytes] = ..., timestamp_rules: _Optional[bytes] = ..., field_mask_rules: _Optional[bytes] = ..., cel: _Optional[_Iterable[bytes]] = ..., required: _Optional[bool] = ..., ignore: _Optional[int] = ..., cel_expression: _Optional[_Iterable[bytes]] = ...) -> None: ...

class FloatRules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "finite", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    FINITE_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: float
    lt: float
    lte: float
    gt: float
    gte: float
    among: _containers.RepeatedScalarFieldContainer[float]
    not_among: _containers.RepeatedScalarFieldContainer[float]
    finite: bool
    example: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, const: _Optional[float] = ..., lt: _Optional[float] = ..., lte: _Optional[float] = ..., gt: _Optional[float] = ..., gte: _Optional[float] = ..., among: _Optional[_Iterable[float]] = ..., not_among: _Optional[_Iterable[float]] = ..., finite: _Optional[bool] = ..., example: _Optional[_Iterable[float]] = ...) -> None: ...

class DoubleRules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "finite", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    FINITE_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: float
    lt: float
    lte: float
    gt: float
    gte: float
    among: _containers.RepeatedScalarFieldContainer[float]
    not_among: _containers.RepeatedScalarFieldContainer[float]
    finite: bool
    example: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, const: _Optional[float] = ..., lt: _Optional[float] = ..., lte: _Optional[float] = ..., gt: _Optional[float] = ..., gte: _Optional[float] = ..., among: _Optional[_Iterable[float]] = ..., not_among: _Optional[_Iterable[float]] = ..., finite: _Optional[bool] = ..., example: _Optional[_Iterable[float]] = ...) -> None: ...

class VarintRules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example", "long_example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    LONG_EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    long_example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ..., long_example: _Optional[_Iterable[int]] = ...) -> None: ...

class UnsignedRules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class ZigzagRules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class Fixed32Rules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class Fixed64Rules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class Sfixed32Rules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class Sfixed64Rules(_message.Message):
    __slots__ = ("const", "lt", "lte", "gt", "gte", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    LT_FIELD_NUMBER: _ClassVar[int]
    LTE_FIELD_NUMBER: _ClassVar[int]
    GT_FIELD_NUMBER: _ClassVar[int]
    GTE_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    lt: int
    lte: int
    gt: int
    gte: int
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., lt: _Optional[int] = ..., lte: _Optional[int] = ..., gt: _Optional[int] = ..., gte: _Optional[int] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class BoolRules(_message.Message):
    __slots__ = ("const", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: bool
    example: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, const: _Optional[bool] = ..., example: _Optional[_Iterable[bool]] = ...) -> None: ...

class StringRules(_message.Message):
    __slots__ = ("const", "min_len", "max_len", "min_bytes", "max_bytes", "pattern", "prefix", "suffix", "contains", "among", "not_among", "email", "hostname", "ip", "ipv4", "ipv6", "uri", "uri_ref", "len", "len_bytes", "address", "uuid", "not_contains", "well_known_regex", "strict", "ip_with_prefixlen", "ipv4_with_prefixlen", "ipv6_with_prefixlen", "ip_prefix", "ipv4_prefix", "ipv6_prefix", "host_and_port", "tuuid", "example", "ulid", "protobuf_fqn", "protobuf_dot_fqn")
    CONST_FIELD_NUMBER: _ClassVar[int]
    MIN_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EMAIL_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    IPV4_FIELD_NUMBER: _ClassVar[int]
    IPV6_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    URI_REF_FIELD_NUMBER: _ClassVar[int]
    LEN_FIELD_NUMBER: _ClassVar[int]
    LEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    NOT_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    WELL_KNOWN_REGEX_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    IP_WITH_PREFIXLEN_FIELD_NUMBER: _ClassVar[int]
    IPV4_WITH_PREFIXLEN_FIELD_NUMBER: _ClassVar[int]
    IPV6_WITH_PREFIXLEN_FIELD_NUMBER: _ClassVar[int]
    IP_PREFIX_FIELD_NUMBER: _ClassVar[int]
    IPV4_PREFIX_FIELD_NUMBER: _ClassVar[int]
    IPV6_PREFIX_FIELD_NUMBER: _ClassVar[int]
    HOST_AND_PORT_FIELD_NUMBER: _ClassVar[int]
    TUUID_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    ULID_FIELD_NUMBER: _ClassVar[int]
    PROTOBUF_FQN_FIELD_NUMBER: _ClassVar[int]
    PROTOBUF_DOT_FQN_FIELD_NUMBER: _ClassVar[int]
    const: str
    min_len: int
    max_len: int
    min_bytes: int
    max_bytes: int
    pattern: str
    prefix: str
    suffix: str
    contains: str
    among: _containers.RepeatedScalarFieldContainer[str]
    not_among: _containers.RepeatedScalarFieldContainer[str]
    email: bool
    hostname: bool
    ip: bool
    ipv4: bool
    ipv6: bool
    uri: bool
    uri_ref: bool
    len: int
    len_bytes: int
    address: bool
    uuid: bool
    not_contains: str
    well_known_regex: int
    strict: bool
    ip_with_prefixlen: bool
    ipv4_with_prefixlen: bool
    ipv6_with_prefixlen: bool
    ip_prefix: bool
    ipv4_prefix: bool
    ipv6_prefix: bool
    host_and_port: bool
    tuuid: bool
    example: _containers.RepeatedScalarFieldContainer[str]
    ulid: bool
    protobuf_fqn: bool
    protobuf_dot_fqn: bool
    def __init__(self, const: _Optional[str] = ..., min_len: _Optional[int] = ..., max_len: _Optional[int] = ..., min_bytes: _Optional[int] = ..., max_bytes: _Optional[int] = ..., pattern: _Optional[str] = ..., prefix: _Optional[str] = ..., suffix: _Optional[str] = ..., contains: _Optional[str] = ..., among: _Optional[_Iterable[str]] = ..., not_among: _Optional[_Iterable[str]] = ..., email: _Optional[bool] = ..., hostname: _Optional[bool] = ..., ip: _Optional[bool] = ..., ipv4: _Optional[bool] = ..., ipv6: _Optional[bool] = ..., uri: _Optional[bool] = ..., uri_ref: _Optional[bool] = ..., len: _Optional[int] = ..., len_bytes: _Optional[int] = ..., address: _Optional[bool] = ..., uuid: _Optional[bool] = ..., not_contains: _Optional[str] = ..., well_known_regex: _Optional[int] = ..., strict: _Optional[bool] = ..., ip_with_prefixlen: _Optional[bool] = ..., ipv4_with_prefixlen: _Optional[bool] = ..., ipv6_with_prefixlen: _Optional[bool] = ..., ip_prefix: _Optional[bool] = ..., ipv4_prefix: _Optional[bool] = ..., ipv6_prefix: _Optional[bool] = ..., host_and_port: _Optional[bool] = ..., tuuid: _Optional[bool] = ..., example: _Optional[_Iterable[str]] = ..., ulid: _Optional[bool] = ..., protobuf_fqn: _Optional[bool] = ..., protobuf_dot_fqn: _Optional[bool] = ...) -> None: ...

class BytesRules(_message.Message):
    __slots__ = ("const", "min_len", "max_len", "pattern", "prefix", "suffix", "contains", "among", "not_among", "ip", "ipv4", "ipv6", "len", "example", "uuid")
    CONST_FIELD_NUMBER: _ClassVar[int]
    MIN_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_LEN_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    CONTAINS_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    IPV4_FIELD_NUMBER: _ClassVar[int]
    IPV6_FIELD_NUMBER: _ClassVar[int]
    LEN_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    const: bytes
    min_len: int
    max_len: int
    pattern: str
    prefix: bytes
    suffix: bytes
    contains: bytes
    among: _containers.RepeatedScalarFieldContainer[bytes]
    not_among: _containers.RepeatedScalarFieldContainer[bytes]
    ip: bool
    ipv4: bool
    ipv6: bool
    len: int
    example: _containers.RepeatedScalarFieldContainer[bytes]
    uuid: bool
    def __init__(self, const: _Optional[bytes] = ..., min_len: _Optional[int] = ..., max_len: _Optional[int] = ..., pattern: _Optional[str] = ..., prefix: _Optional[bytes] = ..., suffix: _Optional[bytes] = ..., contains: _Optional[bytes] = ..., among: _Optional[_Iterable[bytes]] = ..., not_among: _Optional[_Iterable[bytes]] = ..., ip: _Optional[bool] = ..., ipv4: _Optional[bool] = ..., ipv6: _Optional[bool] = ..., len: _Optional[int] = ..., example: _Optional[_Iterable[bytes]] = ..., uuid: _Optional[bool] = ...) -> None: ...

class EnumRules(_message.Message):
    __slots__ = ("const", "defined_only", "among", "not_among", "example")
    CONST_FIELD_NUMBER: _ClassVar[int]
    DEFINED_ONLY_FIELD_NUMBER: _ClassVar[int]
    AMONG_FIELD_NUMBER: _ClassVar[int]
    NOT_AMONG_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    const: int
    defined_only: bool
    among: _containers.RepeatedScalarFieldContainer[int]
    not_among: _containers.RepeatedScalarFieldContainer[int]
    example: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, const: _Optional[int] = ..., defined_only: _Optional[bool] = ..., among: _Optional[_Iterable[int]] = ..., not_among: _Optional[_Iterable[int]] = ..., example: _Optional[_Iterable[int]] = ...) -> None: ...

class RepeatedRules(_message.Message):
    __slots__ = ("min_items", "max_items", "unique", "items")
    MIN_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    min_items: int
    max_items: int
    unique: bool
    items: FieldRules
    def __init__(self, min_items: _Optional[int] = ..., max_items: _Optional[int] = ..., unique: _Optional[bool] = ..., items: _Optional[_Union[FieldRules, _Mapping]] = ...) -> None: ...
