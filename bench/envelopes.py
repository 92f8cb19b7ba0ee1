"""What `bench.decode --envelopes` opens: documents of 508 bytes by their paths, at ingest and again at split."""

import pyarrow as pa

from bench.decode import Contender, json_payloads, values
from pipeline.data.contracts.envelopes.envelope import Records
from pipeline.data.contracts.envelopes.opening import open_records, payloads_of
from pipeline.data.contracts.profile import SourceProfile

_FIELDS = {"event_id": "id", "event_time": "ts", "game": "game", "payload": "payload", "type": "type"}
_INSIDE = SourceProfile(envelope="json", framing="type", fields=tuple(_FIELDS.items()))
_WHOLE = SourceProfile(envelope="json", framing="type", fields=tuple(_FIELDS.items() - {("payload", "payload")}))


def contenders(rows: int) -> dict[str, Contender]:
    """Return what is measured, by name."""
    heads = [
        f'{{"game":"chess-{row % 300}","type":"Lap","ts":{1_790_000_000_000 + row},"id":"{row * 7919:032x}",'.encode()
        for row in range(rows)
    ]
    payloads = [payload[payload.index(b'"lap"') :] for payload in json_payloads(values(rows), maps=False)]
    inside = [b'%s"payload":{%s}' % (head, payload) for head, payload in zip(heads, payloads, strict=True)]
    twice = [document.replace(b'{"lap"', b'{"type":"x","lap"') for document in inside]
    whole = [head + payload for head, payload in zip(heads, payloads, strict=True)]
    found = {}
    for name, contents, profile in (
        ("payload inside", inside, _INSIDE),
        ("payload with a key of the envelope", twice, _INSIDE),
        ("payload is the document", whole, _WHOLE),
    ):
        found[f"{name}, at ingest"] = _opened(contents, profile)
        found[f"{name}, at split"] = _split(contents, profile)
    return found


def _opened(contents: list[bytes], profile: SourceProfile) -> Contender:
    count = len(contents)
    headers = pa.nulls(count, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    records = Records(
        pa.array(contents, pa.binary()), pa.nulls(count, pa.binary()), headers, pa.nulls(count, pa.string())
    )
    return Contender(lambda: int(open_records(records, profile).refused.null_count))


def _split(contents: list[bytes], profile: SourceProfile) -> Contender:
    held = pa.array(contents, pa.binary())
    return Contender(lambda: len(payloads_of(held, profile).payload.drop_null()))
