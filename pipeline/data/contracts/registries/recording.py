"""Writes what a registry answered into the control store: schemas, what its writers mean, and registrations.

Called by the resolution, under the lock of the store's numbers. What is there already counts: a registry that
contradicts it changes nothing.
"""

import hashlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from sqlalchemy import Connection, Engine

from pipeline.base.errors import Refused
from pipeline.base.names import GameKey
from pipeline.data.contracts.decoded import one_line
from pipeline.data.contracts.event_types import event_type
from pipeline.data.contracts.formats.supported import fingerprint, format_of
from pipeline.data.contracts.game_types import joined_types
from pipeline.data.contracts.given_ids import NewIds
from pipeline.data.contracts.policies import Policies
from pipeline.data.contracts.registration_batch import RegistrationBatch
from pipeline.data.contracts.registrations import unattended
from pipeline.data.contracts.registries.answers import Found, Version, by_age, version_of
from pipeline.data.contracts.schemas import Schema
from pipeline.data.contracts.stored_schemas import read_ids, read_schemas, write_schema
from pipeline.data.contracts.writer_ids import id_length, shown_writer
from pipeline.store.database.engine import writing
from pipeline.store.schema_needs import (
    OpenNeed,
    end_needs,
    first_elsewhere,
    games_that_read_again,
    needs_of_games,
    read_again,
)
from pipeline.store.writers import WriterRow, lock, newest_writers, rows_of_paths, write_writers

MOST_MESSAGES: Final = 16
"""Most messages of one schema that are kept at once; each further one is kept when a row needs it."""

_NO_MESSAGE: Final = "it has no message at that index path, or clients differ about which one it is"
_SHOWN_DIGITS: Final = 16  # of a fingerprint, for people


@dataclass(frozen=True, slots=True)
class Meaning:
    """One message of a registry's schema: usable, or refused."""

    path: bytes  # its index path as on the wire; empty where no path follows the id
    message: str
    definition: bytes = b""  # canonical
    fingerprint: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Understood:
    """A registry's schema in turnout's terms."""

    writer: bytes  # the id, without an index path
    format: str
    meanings: tuple[Meaning, ...]
    paths: str | None  # a hash of all index paths and their messages; None: no index path follows the id
    version: Version | None = None

    def rows(self, registry: str, ids: Mapping[str, int]) -> Iterator[WriterRow]:
        """Yield what the registry's writers mean, with our ids of schemas by fingerprint."""
        subject, number = self.version or (None, None)
        if self.paths is not None:
            yield WriterRow(
                registry, self.writer, indexed=True, fingerprint=self.paths, subject=subject, version=number
            )
        for each in self.meanings:
            writer, refused = self.writer + each.path, each.refused
            if refused is not None:
                refused = one_line(
                    f"registry {registry} has schema {shown_writer(writer)}, which turnout cannot use: {refused}"
                )
            schema_id = None if each.fingerprint is None else ids[each.fingerprint]
            yield WriterRow(
                registry, writer, schema_id, refused, fingerprint=each.fingerprint, subject=subject, version=number
            )


def understood(found: Found, writer: bytes, wanted: Iterable[bytes], message: str | None) -> Understood:
    """Return what an answer means. It checks definitions, so it is called before a transaction begins.

    Args:
        found: the answer.
        writer: the writer of the question.
        wanted: all writers that games wait for; those of the same id are among the result's.
        message: the name of the message where no index path follows the id, empty for the only one of the file; None
            where a path follows, or the answer itself tells.
    """
    if b"" in found.messages:
        return Understood(writer, found.format, (_meaning(found, b"", found.messages[b""]),), None, found.version)
    if message is not None:
        name = message or (next(iter(found.messages.values())) if len(found.messages) == 1 else None)
        why = "it has several messages, and the settings name none: set source.message"
        meaning = Meaning(b"", "", refused=why) if name is None else _meaning(found, b"", name)
        return Understood(writer, found.format, (meaning,), None, found.version)
    own = writer[: id_length(writer)]
    paths = [each[len(own) :] for each in (writer, *wanted) if each.startswith(own) and each != own]
    first = dict.fromkeys([*paths, *islice(sorted(found.messages), MOST_MESSAGES)])
    meanings = tuple(_meaning(found, path, found.messages.get(path)) for path in first)
    whole = hashlib.sha256(repr(sorted(found.messages.items())).encode()).hexdigest()
    return Understood(own, found.format, meanings, whole, found.version)


def record(connection: Connection, ids_of_new: NewIds, registry: str, schema: Understood, now: float) -> str | None:
    """Keep a registry's schema and its writers; return how it contradicts what is kept, where nothing changes."""
    ids = read_ids(connection, [each.fingerprint for each in schema.meanings if each.fingerprint is not None])
    known = {each.fingerprint: ids.get(each.fingerprint, 0) for each in schema.meanings if each.fingerprint is not None}
    rows = list(schema.rows(registry, known))
    held = newest_writers(connection, registry, [row.writer for row in rows])
    if id_length(schema.writer) is None and any(row.refused is None for row in held.values()):
        return None  # a name has the schema that it had first; its registry may have a newer one by now
    for row in rows:
        if (before := held.get(row.writer)) is not None and _contradicts(before, row):
            return (
                f"Registry {registry} gave another content for schema {shown_writer(row.writer)} than before: "
                f"fingerprint {_short(row)}, and turnout keeps {_short(before)}. If its ids "
                f"began again, raise its generation; else find out why, then run `turnout schemas trust {registry}`."
            )
    new = [row for row in rows if row.writer not in held or held[row.writer].refused is not None]
    for each in schema.meanings:
        if each.fingerprint is not None and not known[each.fingerprint]:
            values = (each.fingerprint, schema.format, each.message, each.definition)
            known[each.fingerprint] = write_schema(connection, ids_of_new, *values, now)
    final = {row.writer: row for row in schema.rows(registry, known)}
    write_writers(connection, [final[row.writer] for row in new if final[row.writer] != held.get(row.writer)], now)
    return None


def settle(
    connection: Connection,
    ids: NewIds,
    registry: str,
    keys: Collection[GameKey],
    policies: Policies,
    now: float,
    asked: Collection[bytes] = (),
) -> None:
    """Register the schemas of known writers for these games, each game's in the order of its rows, and end its needs.

    What a game needs after a writer that is not known yet stays open: its rows wait for that writer anyway. Schemas of
    one type that are registered together follow each other by age. One that a game's table cannot take is registered
    too: its rows go to quarantine until a person decides. Needs of refused writers that ask again end only where the
    registry was `asked` for the writer. Where an id has several messages, the game's rows are read again, to say which
    one they are; its later needs stay open until they have.
    """
    needs: dict[GameKey, list[OpenNeed]] = {}
    for need in needs_of_games(connection, registry, keys):
        needs.setdefault(need.game_key, []).append(need)
    rows = newest_writers(connection, registry, {need.writer for own in needs.values() for need in own})
    reading, elsewhere = games_that_read_again(connection, now), first_elsewhere(connection, registry, needs)
    registering: list[tuple[OpenNeed, WriterRow]] = []
    for key, own in needs.items():
        if key in reading:
            continue
        ended = []
        for need, row in _answered(connection, own, rows, asked, now, elsewhere.get(key)):
            ended.append(need.writer)
            if row.schema_id is not None:
                registering.append((need, row))
        end_needs(connection, registry, ended, key)
    if registering:
        found = read_schemas(connection, {row.schema_id for _, row in registering if row.schema_id is not None})
        known = [(need, row, found[row.schema_id]) for need, row in registering if row.schema_id is not None]
        types = joined_types(schema for _, _, schema in known)
        ordered = by_age(known, lambda each: _age(*each, types))
        registrations = (
            unattended(need.game, need.game_key, schema, policies, registry=registry) for need, _, schema in ordered
        )
        RegistrationBatch(connection, [*registrations], ids).write()


def _answered(
    connection: Connection,
    needs: Iterable[OpenNeed],
    rows: Mapping[bytes, WriterRow],
    asked: Collection[bytes],
    now: float,
    unknown: tuple[int, int] | None,
) -> Iterator[tuple[OpenNeed, WriterRow]]:
    """Yield the needs of one game that can end, with what their writers mean.

    `unknown` is the place of the first row whose writer is not known yet, as far as another registry gives it.
    """
    for need in needs:
        if unknown is not None and (need.seq, need.pos) > unknown:
            return
        row = rows.get(need.writer)
        if row is None:
            if not need.again:  # a replay's rows keep no others waiting
                unknown = min(unknown or (need.seq, need.pos), (need.seq, need.pos))
            continue
        if row.refused is not None and need.again and need.writer not in asked:
            continue
        if row.indexed:  # which message it is stands in the row, unless the schema has only one
            paths = rows_of_paths(connection, need.registry, need.writer)
            if len(paths) != 1:
                if read_again(connection, need, now):
                    return
                continue
            row = paths[0]
        yield need, row


def _age(need: OpenNeed, row: WriterRow, schema: Schema, types: Mapping[str, str]) -> tuple[Hashable, int] | None:
    """Return a schema's age among those of its game and type; None where it is not known."""
    version, kind = version_of(row.subject, row.version), types[event_type(schema.message)]
    return None if version is None else ((need.game_key, kind, version.subject), version.number)


def give_up(engine: Engine, registry: str, wanted: Collection[bytes], now: float) -> int:
    """Refuse writers that a registry will never answer about, as a person has decided; their rows go to quarantine.

    Return how many they were: what was answered meanwhile stays so.
    """
    with writing(engine) as connection:
        lock(connection)
        unknown = sorted(set(wanted) - newest_writers(connection, registry, wanted).keys())
        rows = (
            WriterRow(
                registry, writer, refused=f"a person gave up waiting for schema {shown_writer(writer)} of {registry}"
            )
            for writer in unknown
        )
        write_writers(connection, rows, now)
        end_needs(connection, registry, unknown)
        return len(unknown)


def _meaning(found: Found, path: bytes, message: str | None) -> Meaning:
    if message is None:
        return Meaning(path, "", refused=_NO_MESSAGE)
    try:
        definition = format_of(found.format).canonical(message, found.definition)
    except Refused as refused:
        return Meaning(path, message, refused=str(refused))
    return Meaning(path, message, definition, fingerprint(found.format, message, definition))


def _contradicts(before: WriterRow, now: WriterRow) -> bool:
    """Return whether two answers about one writer exclude each other; a later turnout may use what was refused."""
    if before.refused is not None or now.refused is not None:
        return False
    return (before.indexed, before.fingerprint) != (now.indexed, now.fingerprint)


def _short(row: WriterRow) -> str:
    return (row.fingerprint or "unknown")[:_SHOWN_DIGITS]
