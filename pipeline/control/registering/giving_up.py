"""Gives up what games wait for from a registry that will never answer, as a person decides: first what follows.

Such as an earlier generation of a registry that was rebuilt. Called by `turnout schemas give-up`.
"""

import time
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.base.texts import join_limited
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.data.contracts.registries.recording import give_up as refuse_all
from pipeline.data.contracts.writer_ids import shown_writer
from pipeline.settings.tree import Settings
from pipeline.store.audit import Act
from pipeline.store.schema_needs import read_needs


@dataclass(frozen=True, slots=True)
class GivingUp:
    """What a person is shown before they give up what games wait for."""

    registry: str  # as answers are kept: with its generation, and the message where there is one
    writers: tuple[bytes, ...]
    lines: tuple[str, ...]  # for people; raw texts are in them


def propose(engine: Engine, registry: str) -> GivingUp:
    """Return what games wait for from a registry.

    Raises:
        Refused: no game waits for it.
    """
    with engine.connect() as connection:
        everything = read_needs(connection)
    needs = [each for each in everything if each.registry == registry]
    if not needs:
        others = sorted({each.registry for each in everything})
        which = f"Games wait for {', '.join(others)}." if others else "No game waits for any."
        raise Refused(f"No game waits for the registry {shown(registry)}. {which}")
    writers = tuple(sorted({each.writer for each in needs}))
    games = sorted({each.game for each in needs})
    return GivingUp(
        registry,
        writers,
        (
            f"Games that wait: {join_limited([shown(each) for each in games])}.",
            f"Schemas that they wait for: {join_limited([shown_writer(each) for each in writers])}.",
            "Their rows go to quarantine with their bytes, and rows behind them land.",
            "If the registry has the schemas one day, a replay lands them.",
        ),
    )


def give_up(settings: Settings, engine: Engine, proposal: GivingUp, actor: str, reason: str) -> str:
    """Refuse what games wait for, and return what was done; audited with the schemas.

    Raises:
        Refused: the actor has not the role, or gives no reason. Then nothing is written.
    """
    detail = {"reason": reason, "writers": [each.hex() for each in proposal.writers]}
    act = Act(actor, str(DirectAct.GIVE_UP_REGISTRY), (f"registry:{proposal.registry}",), None, detail)
    with gate.acting(settings, engine, DirectAct.GIVE_UP_REGISTRY, act):
        number = refuse_all(engine, proposal.registry, proposal.writers, time.time())
    return f"Schemas of registry {proposal.registry} that are given up: {number}."
