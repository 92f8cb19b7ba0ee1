"""Producers of the edge that a person applies or revokes: first what would change, then the write.

Called by `turnout edge producers …` and by the Access page. They are written at once, without an operation, if nobody
was faster; every edge follows within seconds.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.base.names import shown
from pipeline.control import gate
from pipeline.control.acts import DirectAct
from pipeline.control.producers import producers_file
from pipeline.settings.tree import Settings
from pipeline.store import edge_producers
from pipeline.store.edge_producers import EdgeProducer, ProducerSet, by_credential, read_producers
from pipeline.store.operations import hash_of


@dataclass(frozen=True, slots=True, eq=False)
class ProducersProposal:
    """Producers as they would be, beside those that are in force."""

    seen: ProducerSet
    producers: tuple[EdgeProducer, ...]  # with the revoked ones, which stay
    lines: tuple[str, ...]  # for people

    @property
    def changes(self) -> bool:
        """Whether anything changes."""
        return self.producers != self.seen.producers

    @property
    def hash(self) -> str:
        """Return a hash of the producers before and after."""
        return hash_of({"seen": self.seen.number, "producers": producers_file.render(self.producers)})


def plan(engine: Engine, text: str) -> ProducersProposal:
    """Plan to replace the producers by those of a file's text; revoked ones are kept, so that they stay revoked.

    Raises:
        Refused: naming everything that is wrong with the file; or it has a revoked token.
    """
    seen, given = read_producers(engine), producers_file.parse(text)
    revoked = [each for each in seen.producers if each.revoked]
    gone = by_credential(revoked)
    for each in given:
        for credential in each.credentials:
            if credential in gone:
                what = "token" if credential == each.token_sha256 else "certificate"
                raise Refused(
                    f"The {what} of {shown(each.name)} was revoked, as that of {shown(gone[credential].name)}. "
                    + ("Make a new one: `turnout edge producers token`." if what == "token" else "Use another name.")
                )
    producers = (*given, *revoked)
    lines = tuple(_differences(seen.producers, producers)) or ("Nothing to change: these producers are in force.",)
    return ProducersProposal(seen, producers, lines)


def plan_added(engine: Engine, producer: EdgeProducer) -> ProducersProposal:
    """Plan to add one producer to those in force.

    Raises:
        Refused: naming what is wrong with it; another one has its name, token or certificate; or it was revoked.
    """
    text = producers_file.render((*read_producers(engine).producers, producer))
    try:
        producers_file.parse(text)
    except Refused as refused:
        problems = [each.partition(": ")[2] or each for each in str(refused).splitlines()[1:]]  # without their lines
        named = (re.sub(r"already in line \d+; keep one", "another producer's already", each) for each in problems)
        raise Refused("\n".join(["The producer cannot be added:", *named])) from None
    return plan(engine, text)


def apply(settings: Settings, engine: Engine, proposal: ProducersProposal, actor: str, reason: str) -> ProducerSet:
    """Write planned producers, with their audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; or another person was faster.
    """
    act = DirectAct.CHANGE_PRODUCERS
    gate.permit(settings, engine, actor, act, reason)
    seen = proposal.seen.number
    return edge_producers.apply(engine, proposal.producers, seen, actor, reason, action=act, target="producers")


def revoke(settings: Settings, engine: Engine, name: str, actor: str, reason: str) -> ProducerSet:
    """Refuse a producer's token and certificate for ever, with an audit entry.

    Raises:
        Refused: the actor has not the role for it, or gives no reason; there is no such producer; or it is revoked.
    """
    gate.permit(settings, engine, actor, DirectAct.REVOKE_PRODUCER, reason)
    return edge_producers.revoke(engine, name, actor, reason)


def _differences(before: tuple[EdgeProducer, ...], then: tuple[EdgeProducer, ...]) -> Iterator[str]:
    """Yield a line for each producer that is added, changed or removed."""
    was, now = ({each.name: _fields(each) for each in those if not each.revoked} for those in (before, then))
    for name, fields in now.items():
        if name not in was:
            yield f"+ {name}: {'; '.join(f'{field} {value}' for field, value in fields.items())}"
        elif was[name] != fields:
            changed = [field for field in {**was[name], **fields} if was[name].get(field) != fields.get(field)]
            parts = (f"{each} {was[name].get(each, '-')} → {fields.get(each, '-')}" for each in changed)
            yield f"~ {name}: {'; '.join(parts)}"
    yield from (f"- {name}: its streams end within 10 s" for name in was if name not in now)


def _fields(producer: EdgeProducer) -> dict[str, str]:
    fields = producers_file.tree(producer)
    if "token_sha256" in fields:
        fields["token_sha256"] = f"{fields['token_sha256'][:8]}…"
    del fields["name"]
    return {name: ", ".join(each) if isinstance(each, list) else str(each) for name, each in fields.items()}
