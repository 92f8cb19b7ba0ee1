"""The one sentence of each page: what is wrong, since when, how urgent. Pure functions of one situation.

A page with a subject of its own, such as access, hands over its sentence, and `beside` joins what stands elsewhere.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from listeners.process_kinds import CONTROLLER, GROUP
from listeners.status import Status
from pipeline.base.texts import join_limited, visible
from pipeline.health.headlines.standings import (
    Concern,
    SeenGame,
    Situation,
    is_own_trouble,
    is_worse,
    of_status,
    past,
    worst,
)
from pipeline.health.verdicts.judgement import Problem
from pipeline.health.verdicts.processes import DriverState
from pipeline.store.database.states import Cause

OF_SCHEMAS: Final = frozenset({Cause.SCHEMA, Cause.REGISTRY})
OF_ACCESS: Final = frozenset({Cause.ACCESS})
"""Causes of the incidents that the pages Schemas and Access are about."""

HeadlineTone = Literal["well", "plain", "busy", "late", "bad", "blind"]


@dataclass(frozen=True, slots=True)
class Headline:
    """A sentence, its urgency, the beginning of what it names, and the clauses beside it."""

    text: str
    tone: HeadlineTone
    since: float | None = None  # Unix seconds, of what the sentence names; None: nobody knows, or it names no trouble
    notes: tuple[str, ...] = ()
    elsewhere: Concern | None = None  # the worst that stands beside what the sentence names

    @property
    def line(self) -> str:
        """The sentence with its clauses, as a command prints it."""
        return "; ".join((self.text, *self.notes))


def beside(own: Headline, of: Situation, known: Collection[Concern] = ()) -> Headline:
    """Return a page's own headline with the worst that stands elsewhere: `known` is what it names already.

    It is green only where nothing stands at all.
    """
    others = [each for each in of.standings if each not in known]
    is_grey = own.tone == "well" and (of.standings or of.incidents is None)
    is_worse = bool(others) and (
        own.tone not in {"late", "bad"} or (own.tone == "late" and others[0].severity == "bad")
    )
    return replace(own, tone="plain" if is_grey else own.tone, elsewhere=others[0] if is_worse else None)


def of_subject(own: Headline, of: Situation, causes: Collection[Cause]) -> Headline:
    """Return the headline of a page whose subject is that of incidents with these causes.

    Such an incident is the sentence where the page itself knows of no trouble, and gives it its severity where it does.
    """
    mine = [each for each in of.standings if each.incident is not None and each.incident.finding.cause in causes]
    severity = worst(mine)
    if severity is None or own.tone == "blind":
        return beside(own, of)
    if own.tone in {"late", "bad"}:
        return beside(replace(own, tone=severity if severity != "busy" else own.tone), of, mine)
    calm = () if own.tone == "well" else (own.text,)  # what says that all of its subject is well is not so now
    return beside(Headline(_first(mine), severity, mine[0].since, (*calm, *own.notes)), of, mine)


def of_fleet(of: Situation) -> Headline:
    """Say how the fleet is: streams in trouble first, else the worst of all that stands."""
    judgement, standings = of.judgement, of.standings
    own = [each for each in of.games if is_own_trouble(each.verdict)]
    severity = worst(standings)
    if own and judgement.silence is None:
        return Headline(judgement.streams(), severity or "late", _named_since(own, of.now), judgement.notes)
    trouble = [each for each in standings if each.is_trouble]
    streams = judgement.streams(is_calm=not standings and of.incidents is not None)
    if trouble:
        return Headline(_first(trouble), trouble[0].severity, trouble[0].since, (streams,))
    starts = [each for each in standings if each.incident is None]
    if starts:
        starting = (each.verdict for each in of.games if each.verdict.status == Status.STARTING)
        is_said = any(not each.waits_for_ingest for each in starting)
        return Headline(streams if is_said else starts[0].text, "busy", starts[0].since, () if is_said else (streams,))
    if standings:
        return Headline(f"{_first(standings)}: recovering", "busy", standings[0].since, (streams,))
    unknown = () if of.incidents is not None else ("causes are not known",)
    return Headline(streams, _calm_tone(of), None, (*judgement.notes, *unknown))


def of_groups(of: Situation) -> Headline:
    """Say how the groups' drivers are, in the words of the fleet's headline where one is not well."""
    judgement = of.judgement
    about = [each for each in of.standings if each.is_of_group]
    trouble = [each for each in about if each.is_trouble]
    if notes := judgement.group_notes:
        text = "; ".join(each.text for each in notes)
        named = [each for each in trouble if each.group in notes[0].groups]
        known = [each.since for each in named if each.since is not None]
        since = judgement.silence.since if judgement.silence is not None else min(known, default=None)
        return beside(Headline(_capital(text), worst(trouble) or "bad", since), of, about)
    if trouble:
        return beside(Headline(_first(trouble), trouble[0].severity, trouble[0].since), of, about)
    stopped = judgement.stopped_groups
    enabled = [each for each in judgement.of(GROUP) if each.name not in stopped]
    starting = [each for each in judgement.of(GROUP) if each in judgement.starting]
    if not judgement.of(GROUP):
        return beside(Headline("No cluster group yet", "plain"), of)
    if not enabled:
        return beside(Headline("All groups are stopped (as configured)", "plain"), of)
    if starting:
        names = join_limited([visible(each.name, 40) for each in starting], 3)
        began = [each.since for each in about if each.incident is None and each.since is not None]
        text = f"{len(starting)} of {len(enabled)} groups' drivers starting: {names}"
        return beside(Headline(text, "busy", min(began, default=None)), of, about)
    if about:
        return beside(Headline(f"{_first(about)}: recovering", "busy", about[0].since), of, about)
    if len(enabled) == 1:
        text = "The only enabled group has a live driver" if stopped else "The only group's driver is alive"
    else:
        some = f"All {len(enabled)}"
        text = f"{some} enabled groups have a live driver" if stopped else f"{some} groups' drivers are alive"
    return beside(Headline(text, "well"), of)


def of_repairs(of: Situation, stopped: Collection[str]) -> Headline:
    """Say what can be repaired; `stopped` are the keys of streams that are parked or wait after a failure."""
    keys = to_repair(of, stopped)
    about = of.about(keys)
    if not keys:
        return beside(Headline("No stream needs a repair", "well"), of)
    own = [each for each in of.games if is_own_trouble(each.verdict) or each.game_key in stopped]
    if not own:
        return beside(Headline(about[0].text, about[0].severity, about[0].since), of, about)
    streams = "1 stream" if len(own) == 1 else f"{len(own):,} streams"
    halted = sum(each.game_key in stopped for each in own)
    text = f"{streams} in trouble, {halted or 'none'} of them parked or waiting after a failure"
    if halted == len(own):
        text = f"{streams} parked or waiting after a failure"
    known = [each.verdict.since for each in own if past(each.verdict.since, of.now) is not None]
    severity = worst(about)
    tone: HeadlineTone = severity if severity in {"bad", "late"} else "late"
    return beside(Headline(text, tone, min(filter(None, known), default=None)), of, about)


def to_repair(of: Situation, stopped: Collection[str]) -> frozenset[str]:
    """Return the games at which the page Repairs is about: in trouble, stopped, or of an incident that it mends."""
    troubled = {each.game_key for each in of.games if is_own_trouble(each.verdict)}
    mended = {
        key
        for each in of.opened
        if each.finding.action is not None and each.finding.action.page == "repairs"
        for key in each.games
    }
    return frozenset(troubled | mended | set(stopped))


def of_operations(of: Situation, opened: int, stuck: int) -> Headline:
    """Say what is open, and who carries it out; `stuck` of them need a person."""
    absence = of.judgement.controller_absence
    missing = [each for each in of.standings if _is_of_controller(each, of)] if absence is not None else []
    about = [
        *missing,
        *(each for each in of.standings if each.problem is not None and each.problem.kind == "operation"),
    ]
    needs = f"{_operations(stuck, 'needs', 'need')} a person" if stuck else ""
    notes = (needs,) if needs else ()
    if absence is not None and (missing or opened > stuck):
        text = _capital(absence)
        if opened > stuck:
            text = f"{_operations(opened - stuck, 'waits', 'wait')} for a controller"
        tone: HeadlineTone = missing[0].severity if missing else "late"
        since = missing[0].since if missing else None
        return beside(Headline(text, tone, since, notes if opened else ("no operation is open",)), of, about)
    if stuck:
        text = f"{needs}, {opened - stuck} more open" if opened > stuck else needs
        return beside(Headline(text, "late"), of, about)
    if opened:
        return beside(Headline(_operations(opened, "is open", "are open"), "busy"), of)
    return beside(
        Headline("No operation is open", "plain" if absence else "well", None, (absence or "the controller runs",)), of
    )


def of_game(of: Situation, game: SeenGame) -> Headline:
    """Say how one game is: as its cell in the grid, with what stands elsewhere beside it."""
    severity, incident = of.severity_of(game), of.incident_of.get(game.game_key)
    tone: HeadlineTone = severity or ("plain" if game.verdict.status == Status.PAUSED else "well")
    since = game.verdict.since if incident is None or not game.verdict.status.is_well else incident.since
    word = game.verdict.status.lower().replace("_", " ")
    text = f"{visible(game.game, 120)} {word}"
    known = [each for each in of.about([game.game_key]) if not is_worse(each.severity, severity)]
    return replace(beside(Headline(text, tone, past(since, of.now)), of, known), tone=tone)


def _is_of_controller(standing: Concern, of: Situation) -> bool:
    if standing.incident is not None:
        return standing.incident.finding.cause == Cause.CONTROLLER
    return standing.problem is not None and any(
        _is_about(standing.problem, each) for each in of.judgement.of(CONTROLLER)
    )


def _is_about(problem: Problem, state: DriverState) -> bool:
    return (problem.kind, problem.name) == (state.kind, state.name)


def _named_since(trouble: Sequence[SeenGame], now: float) -> float | None:
    """Return since when the streams are so that the sentence names first: those that fail, else the worst others."""
    failing = [each for each in trouble if each.verdict.status.is_bad]
    first = max(each.verdict.status.severity for each in trouble)
    named = failing or [each for each in trouble if each.verdict.status.severity == first]
    known = [each.verdict.since for each in named if each.verdict.since is not None and each.verdict.since <= now]
    return min(known, default=None)


def _calm_tone(of: Situation) -> HeadlineTone:
    """Return green only where streams run, and causes are known."""
    statuses = {each.verdict.status for each in of.games}
    if Status.RUNNING in statuses and of.incidents is not None:
        return "well"
    is_busy = any(not status.is_well and of_status(status) == "busy" for status in statuses)
    return "busy" if is_busy else "plain"


def _first(standings: Sequence[Concern]) -> str:
    """Return the worst, and how many more there are."""
    more = len(standings) - 1
    others = f"; {more} more {'trouble' if more == 1 else 'troubles'}" if more else ""
    return f"{standings[0].text}{others}"


def _operations(count: int, does: str, do: str) -> str:
    return f"1 operation {does}" if count == 1 else f"{count} operations {do}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
