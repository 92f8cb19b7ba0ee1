"""Whether bronze belongs to this environment: its log names the environment that numbered its rows.

Checked before anything is written. Under another name neither bronze's last seq nor any cursor is found, so all rows
would look lost or still to come. Reads only.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.errors import Refused, first_line
from pipeline.base.names import environment_of_bronze
from pipeline.lake.delta import parquet
from pipeline.lake.delta.log import commits_after, log_folder
from pipeline.lake.storage.location import Location

_VERSION_DIGITS: Final = 20
_PART: Final = re.compile(r"\.\d{10}\.(\d{10})\.parquet$")  # a checkpoint in parts: the number of this part, and of all


def require_own(bronze: Location, environment: str) -> None:
    """Refuse a bronze whose seqs come from an environment of another name; without seqs it fits every one.

    Raises:
        Refused: the sentence names both environments and the ways out.
    """
    seqs = _last_seqs(bronze)
    owner = max(seqs, key=lambda name: (seqs[name], name == environment), default=environment)
    if owner != environment:
        raise Refused(
            f"{bronze} belongs to the environment {owner!r}, which has written it up to seq {seqs[owner]}, but the "
            f"setting environment is {environment!r}. Set it to {owner!r} in turnout.toml or TURNOUT_ENVIRONMENT, or "
            "use another --env-dir. Nothing was changed."
        )


def _last_seqs(bronze: Location) -> Mapping[str, int]:
    """Return the last seq of each environment in bronze's log; delta-rs returns only that of a given one."""
    version, transactions = _checkpointed(bronze)
    for _, actions in commits_after(bronze, version):
        transactions.update({each["txn"]["appId"]: int(each["txn"]["version"]) for each in actions if "txn" in each})
    named = ((environment_of_bronze(app_id), seq) for app_id, seq in transactions.items())
    return {name: seq for name, seq in named if name is not None}


def _checkpointed(bronze: Location) -> tuple[int, dict[str, int]]:
    """Return the version of the newest checkpoint, by any writer, and its transactions; -1 where there is none."""
    whole = _newest_checkpoint(_checkpoints(bronze))
    if not whole:
        return -1, {}
    transactions: dict[str, int] = {}
    for file in whole:
        try:
            if "txn" not in parquet.schema(file).names:
                continue
            transactions_read = parquet.read(file, ["txn"]).column("txn").combine_chunks().drop_null()
        except (OSError, pa.ArrowException) as error:
            raise Refused(
                f"{file} cannot be read, so the environment of this bronze is unknown: {first_line(error)}. Put the "
                f"file back "
                "from a copy."
            ) from error
        ids, versions = pc.struct_field(transactions_read, "appId"), pc.struct_field(transactions_read, "version")
        transactions.update(dict(zip(ids.to_pylist(), versions.to_pylist(), strict=True)))
    return int(whole[0].name[:_VERSION_DIGITS]), transactions


def _checkpoints(bronze: Location) -> list[Location]:
    """Return all checkpoint files of a log, the newest first."""
    names = (each.name for each in log_folder(bronze).files())
    found = sorted((name for name in names if ".checkpoint" in name and name.endswith(".parquet")), reverse=True)
    return [log_folder(bronze) / name for name in found]


def _newest_checkpoint(files: Sequence[Location]) -> list[Location]:
    """Return the files of the newest complete checkpoint: a writer that died may have left only some of its parts."""
    by_version: dict[str, list[Location]] = {}
    for file in files:
        by_version.setdefault(file.name[:_VERSION_DIGITS], []).append(file)
    for parts in by_version.values():
        single = [file for file in parts if not _PART.search(file.name)]
        if single:
            return single
        if len(parts) == max(int(match[1]) for file in parts if (match := _PART.search(file.name))):
            return parts
    return []
