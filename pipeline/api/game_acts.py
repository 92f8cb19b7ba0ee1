"""Acts in the life of a game: previews planned as by `turnout games`, and the acts themselves.

An approval is an operation; a proposal, a rejection and rules are written at once. Previews raise `Refused` where the
control store cannot be read, acts where it does not answer. A retired game is restored by `acts.preview_named`.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pipeline.api.acts import Preview, writing
from pipeline.api.environment import OpenEnvironment
from pipeline.base.errors import Refused
from pipeline.base.names import game_key
from pipeline.control.acts import DirectAct
from pipeline.control.onboarding import candidates, rule_proposals
from pipeline.control.operations.onboarding import Wishes, approve
from pipeline.platforms.local.catalog_checks import require_writable
from pipeline.store.database.engine import reading
from pipeline.store.database.states import Priority
from pipeline.store.game_proposals import GameProposal
from pipeline.store.operations import Intent

__all__ = ["preview_approval", "preview_proposal", "preview_rejection", "preview_rules"]


@reading()
def preview_approval(
    environment: OpenEnvironment,
    actor: str,
    name: str,
    group: str | None = None,
    priority: Priority | None = None,
    readers: Sequence[str] = (),
) -> Preview:
    """Plan to make a game of an exact name; None and no readers leave it to its proposal, its rule and placement.

    Raises:
        Refused: it cannot be a game, or is one; the group does not exist; the actor may not grant to these readers; or
            the catalog has another table of the game's key.
    """
    settings = environment.settings
    notes = require_writable(settings, environment.paths, [game_key(name)])
    planned = approve(settings, environment.engine, name, Wishes(group, priority, tuple(readers)), actor)
    return Preview(planned.intent, (*planned.lines, *notes), 1, time.time(), label="Approve the game")


@reading()
def preview_rejection(environment: OpenEnvironment, actor: str, name: str) -> Preview:
    """Show what a rejection of an exact name would do.

    Raises:
        Refused: it cannot name a game, or is one.
    """
    lines = candidates.rejection(environment.engine, name)
    intent = Intent(DirectAct.REJECT_GAME, (f"game:{game_key(name)}",), actor)
    return Preview(intent, lines, 1, time.time(), submit=partial(_reject, name), label="Reject the name")


@reading()
def preview_proposal(environment: OpenEnvironment, actor: str, proposal: GameProposal) -> Preview:
    """Show a proposal as it would be listed; its actor and reason are those of the submission.

    Raises:
        Refused: the name cannot become a game, or is one; its group does not exist; or its schema fits no table.
    """
    named = replace(proposal, proposed_by=actor, reason="for the reason below")
    seen = candidates.as_proposed(environment.settings, environment.engine, environment.paths.bronze, named)
    lines = [line.strip() for line in candidates.lines(seen)]
    intent = Intent(DirectAct.PROPOSE_GAME, (f"game:{proposal.game_key}",), actor)
    submit = partial(_propose, proposal)
    return Preview(intent, tuple(lines), 1, time.time(), submit=submit, label="Propose the game")


@reading()
def preview_rules(environment: OpenEnvironment, actor: str, text: str) -> Preview:
    """Plan to replace the onboarding rules by those of a file's text.

    Raises:
        Refused: naming everything that is wrong with it, a group that does not exist, or that nothing would change.
    """
    proposal = rule_proposals.plan(environment.settings, environment.engine, text, actor)
    if not proposal.changes:
        raise Refused("Nothing to change: these rules are in force.")
    intent = Intent(DirectAct.CHANGE_RULES, ("rules",), actor)
    submit = partial(_apply_rules, text, proposal.hash)
    return Preview(intent, proposal.lines, 0, time.time(), submit=submit, label="Apply the rules")


@writing()
def _reject(name: str, environment: OpenEnvironment, intent: Intent) -> str:
    candidates.reject(environment.settings, environment.engine, name, intent.actor, intent.reason or None)
    return f"{name!r} is rejected."


@writing()
def _propose(proposal: GameProposal, environment: OpenEnvironment, intent: Intent) -> str:
    named = replace(proposal, proposed_by=intent.actor, reason=intent.reason)
    candidates.propose(environment.settings, environment.engine, environment.paths.bronze, named)
    return f"{proposal.game!r} is proposed."


@writing()
def _apply_rules(text: str, shown: str, environment: OpenEnvironment, intent: Intent) -> str:
    """Plan again, as the one who confirms answers for the readers of each changed rule, and write what was shown."""
    settings, store = environment.settings, environment.engine
    proposal = rule_proposals.plan(settings, store, text, intent.actor)
    if proposal.hash != shown:
        raise Refused("Other rules were applied after you looked. Plan again.")
    done = rule_proposals.apply(settings, store, proposal, intent.actor, intent.reason)
    return f"{len(done.rules)} {'rule is' if len(done.rules) == 1 else 'rules are'} in force."
