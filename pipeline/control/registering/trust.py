"""Ends the mistrust of a registry, as a person decides: first what turnout has seen and what follows, then the write.

Called by `turnout schemas trust` and by the page Schemas.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.data.contracts.registries.patience import DEFAULT_PATIENCE
from pipeline.settings.tree import Settings
from pipeline.store.audit import Act
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, read_needs, read_states, trust_again


@dataclass(frozen=True, slots=True, eq=False)
class TrustProposal:
    """What a person is shown before they trust a registry again."""

    seen: RegistryHealth
    lines: tuple[str, ...]  # for people; raw texts are in them


def propose(engine: Engine, registry: str) -> TrustProposal:
    """Return what was seen of a mistrusted registry, and what trust would do; `registry` is a generation of it.

    Raises:
        Refused: there is no such registry, or turnout trusts it.
    """
    with engine.connect() as connection:
        states, needs = read_states(connection), read_needs(connection, registry)
    health = states.get(registry)
    if health is None or health.state != "mistrusted":
        mistrusted = sorted(name for name, each in states.items() if each.state == "mistrusted")
        which = f"It mistrusts {', '.join(mistrusted)}." if mistrusted else "It mistrusts none."
        raise Refused(f"turnout does not mistrust the registry {shown(registry)}. {which}")
    return TrustProposal(health, (health.detail or "turnout does not know any more what it saw.", *_effects(needs)))


def _effects(needs: Sequence[OpenNeed]) -> Iterator[str]:
    yield (
        "turnout keeps the schema that it got first: rows of that id decode with it, also rows that a producer wrote "
        "with the other one. Those are refused, or their values are wrong."
    )
    writers, games = len({each.writer for each in needs}), len({each.game_key for each in needs})
    waiting = f"Schemas that games wait for: {writers}, games that wait: {games}." if needs else "No game waits for it."
    yield f"turnout asks the registry again within {DEFAULT_PATIENCE.idle:.0f} s, and takes new ids from it. {waiting}"
    yield (
        f"turnout looks at one known id every {DEFAULT_PATIENCE.sample / 60:.0f} minutes: where the registry still "
        "gives another schema, turnout stops trusting it again."
    )


def trust(settings: Settings, engine: Engine, proposal: TrustProposal, actor: str, reason: str) -> str:
    """Trust a registry again, and return what was done; audited with what was seen.

    Raises:
        Refused: the actor has not the role or gives no reason, or the registry was trusted, or mistrusted for something
            else, since the proposal. Then nothing is written.
    """
    seen = proposal.seen
    detail = {"reason": reason, "seen": seen.detail, "since": seen.since}
    act = Act(actor, str(DirectAct.TRUST_REGISTRY), (f"registry:{seen.registry}",), None, detail)
    with gate.acting(settings, engine, DirectAct.TRUST_REGISTRY, act):
        if not trust_again(engine, seen.registry, time.time(), seen.since):
            raise Refused("The registry was trusted, or mistrusted again, since you looked. Look again and retry.")
    return f"Registry {seen.registry} is trusted again."
