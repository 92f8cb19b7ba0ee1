"""Whose bronze this is: its log names the environment that gave its rows their seqs.

Asked before anything is written by those who continue it: under another name neither bronze's last seq nor a cursor is
found, so everything would seem to be lost, or still to come. Reads only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.delta.log import commits_after
from pipeline.errors import Refused
from pipeline.names import environment_of_bronze

_VERSION_DIGITS: Final = 20


def require_own(bronze: Path, environment: str) -> None:
    """Refuse a bronze whose last seqs were given by an environment of another name; one without any seq is anybody's.

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


def _last_seqs(bronze: Path) -> Mapping[str, int]:
    """Return the last seq of each environment that bronze's log knows; delta-rs returns only that of a given one."""
    version, transactions = _checkpointed(bronze)
    for _, actions in commits_after(bronze, version):
        transactions.update({each["txn"]["appId"]: int(each["txn"]["version"]) for each in actions if "txn" in each})
    named = ((environment_of_bronze(app_id), seq) for app_id, seq in transactions.items())
    return {name: seq for name, seq in named if name is not None}


def _checkpointed(bronze: Path) -> tuple[int, dict[str, int]]:
    """Return the version of the newest checkpoint, by any writer, and its transactions; -1 where there is none."""
    files = sorted((bronze / "_delta_log").glob("*.checkpoint*.parquet"))
    if not files:
        return -1, {}
    newest = files[-1].name[:_VERSION_DIGITS]
    transactions: dict[str, int] = {}
    for file in (each for each in files if each.name.startswith(newest)):
        if "txn" in pq.read_schema(file).names:
            transactions_read = pq.read_table(file, columns=["txn"]).column("txn").combine_chunks().drop_null()
            ids, versions = pc.struct_field(transactions_read, "appId"), pc.struct_field(transactions_read, "version")
            transactions.update(dict(zip(ids.to_pylist(), versions.to_pylist(), strict=True)))
    return int(newest), transactions
