"""Incidents: games with one cause at one time are one. Pure; ids come in as an argument.

- A cause and its scope (a group, a registry, an operation, the source) make one incident, however many games it has.
- Without a scope, games join within 15 minutes of the last that joined; later ones are another incident.
- A game that changes its cause leaves; a game whose cause ended stays, recovering, until it is level. Once its cause is
  over, an incident names all games that it ever had.
- An incident without games ends, and opens again where its cause comes back within five minutes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from listeners.status import Status
from pipeline.health.incidents.causes import Finding, Settled, key_of, settle
from pipeline.health.incidents.evidence import Evidence, GameWindow, Point
from pipeline.health.incidents.offers import recovery, was_done
from pipeline.health.incidents.outlook import look_ahead
from pipeline.health.incidents.shared import LEAST_TREND
from pipeline.health.incidents.texts import name_of
from pipeline.health.verdicts.upkeep import duration
from pipeline.store.database.states import Cause, IncidentTone

JOIN_SECONDS: Final = 900.0
REOPEN_SECONDS: Final = 300.0

MOST_LINKED: Final = 50
"""Most games that the action of an incident chooses: they stand in a URL."""

ADOPTED: Final = "found before the process that judges was started again: it does not know yet what is usual"

_BY_WHAT_IS_USUAL: Final = frozenset({Cause.CAPACITY, Cause.DRIVER_SLOW, Cause.STORAGE})

_TONES: Final[tuple[IncidentTone, ...]] = get_args(IncidentTone)
_MOSTLY_REFUSED: Final = 0.5
_OF_GROUP: Final = "group "  # as scopes of a group begin
_Key = tuple[Cause, str]
Phase = Literal["open", "acting", "recovering", "ended"]
"""`open`: a person has to act. `acting`: an operation or the controller does. `recovering`: a backlog is worked off."""

_SILENT: Final[_Key] = (Cause.SOURCE_SILENT, "source")


@dataclass(frozen=True, slots=True)
class Incident:
    """Games with one cause at one time."""

    incident_id: str
    finding: Finding  # its title is of the whole incident
    games: tuple[str, ...]  # keys, worst first
    group: str | None  # where all are in one
    since: float
    ended_at: float | None
    outlook: str | None  # "level in about 4 min at this rate"; None: nobody can know
    tone: IncidentTone
    joined_at: float = 0.0  # when a game joined last
    left: tuple[str, ...] = ()  # keys of the games that it had and that are level or elsewhere; of an ended one none

    @property
    def key(self) -> _Key:
        """The cause and scope."""
        return self.finding.cause, self.finding.scope

    @property
    def phase(self) -> Phase:
        """How far its mend is."""
        if self.ended_at is not None:
            return "ended"
        if self.tone == "recovering":
            return "recovering"
        return "open" if self.finding.acting is None else "acting"

    def progress(self, now: float) -> str | None:
        """Say who is at its mend, or when it is level; None where a person has to act, or it has ended."""
        if self.phase == "recovering":
            return self.outlook or "when it is level is not known yet"
        acting = self.finding.acting
        if self.phase != "acting" or acting is None:
            return None
        return f"{acting.does}, for {duration(now - acting.since)}"


@dataclass(slots=True)
class Causes:
    """The settled causes of the games and of the source; one process keeps it beside the memory of looks."""

    games: dict[str, Settled] = field(default_factory=dict)
    source: Settled | None = None
    _adopted: dict[str, Finding] = field(default_factory=dict)  # by game, until it is well
    _recovering: set[str] = field(default_factory=set)  # games that did so, until they have a trend again

    def settle(self, source: Finding | None, games: Mapping[str, Finding | None], evidence: Evidence) -> None:
        """Add one look."""
        now = evidence.now
        self.source = settle(self.source, source, now)
        shared = {key_of(each.finding) for each in self.games.values()}
        known = {key: self._known(found, evidence.games[key], shared) for key, found in games.items()}
        self.games = {
            key: settle(self.games.get(key), found, now, is_mended=self._is_mended(key, evidence))
            for key, found in known.items()
        }
        for key in {*self._adopted, *self._recovering}:
            self._end_adoption(key, evidence.games.get(key))

    def adopt(self, incidents: Collection[Incident], now: float) -> None:
        """Take over what an earlier process had settled, at the first look."""
        for each in incidents:
            if each.ended_at is not None:
                continue
            if each.finding.cause in _BY_WHAT_IS_USUAL and not each.finding.is_fact:
                evidence = tuple(dict.fromkeys((*each.finding.evidence, ADOPTED)))
                self._adopted |= dict.fromkeys(each.games, replace(each.finding, evidence=evidence))
            if each.tone == "recovering":
                self._recovering |= set(each.games)
                continue
            if each.finding.scope == "source":
                self.source = self.source or Settled(each.finding, now)
            for key in each.games:
                self.games.setdefault(key, Settled(each.finding, now))

    def _is_mended(self, key: str, evidence: Evidence) -> bool:
        """Return whether what the action of a game's cause plans has succeeded since the cause began."""
        settled, window = self.games.get(key), evidence.games[key]
        if settled is None or settled.finding is None:
            return False
        return was_done(settled.finding, settled.since, window, evidence.groups.get(window.seen.group or ""))

    def _known(self, found: Finding | None, window: GameWindow, shared: Collection[_Key | None]) -> Finding | None:
        """Return a game's finding, or what an earlier process had found where this one knows too little to judge.

        A cause that its group shared at the look before (`shared`) stays its group's, however many games have it.
        """
        of_group = f"{_OF_GROUP}{window.seen.group or ''}"
        if found is not None and not found.scope and (found.cause, of_group) in shared:
            return replace(found, scope=of_group)
        if found is None or found.cause != Cause.UNDETERMINED or window.seen.waits_for_ingest:
            return found
        key = window.seen.game_key
        if key in self._recovering and len(window.trend) < LEAST_TREND:
            return None
        kept = self._adopted.get(key)
        if kept is None:  # a game that is late since then has the cause of its group
            kept = next((each for each in self._adopted.values() if each.scope and each.scope == found.scope), None)
        return found if kept is None or kept.scope not in {"", found.scope} else kept

    def _end_adoption(self, key: str, window: GameWindow | None) -> None:
        if window is None or not (window.seen.in_trouble or window.seen.status.is_recovering):
            self._adopted.pop(key, None)
            self._recovering.discard(key)
            return
        if len(window.trend) >= LEAST_TREND:
            self._recovering.discard(key)
        kept, settled = self._adopted.get(key), self.games.get(key)
        finding = None if settled is None else settled.finding
        if kept is not None and finding is not None and key_of(finding) != key_of(kept):
            del self._adopted[key]


def ended(incident: Incident, now: float, games: str = "") -> Incident:
    """Return an incident that is over, with all games that it ever had; `games` are those that its title names."""
    finding = incident.finding.over(games, incident.finding.evidence)
    had = all_games(incident)
    return replace(incident, finding=finding, games=had, left=(), ended_at=now, outlook=None, tone="recovering")


def all_games(incident: Incident) -> tuple[str, ...]:
    """Return the keys of all games that an incident ever had."""
    return tuple(dict.fromkeys((*incident.games, *incident.left)))


def order(incidents: Collection[Incident]) -> tuple[Incident, ...]:
    """Return the open ones, worst and oldest first, then the ended ones, the newest end first."""
    still_open = sorted(
        (each for each in incidents if each.ended_at is None),
        key=lambda each: (_TONES.index(each.tone), -len(each.games), each.since, each.incident_id),
    )
    ended = sorted(
        (each for each in incidents if each.ended_at is not None),
        key=lambda each: (-(each.ended_at or 0.0), each.incident_id),
    )
    return (*still_open, *ended)


def group_incidents(
    before: Sequence[Incident], causes: Causes, evidence: Evidence, new_id: Callable[[], str]
) -> tuple[Incident, ...]:
    """Return the incidents that are open or changed after a look; `before` has the open ones and those just ended."""
    now, placed, after = evidence.now, set[str](), list[Incident]()
    members = _members(causes, evidence)
    still_open = [each for each in before if each.ended_at is None]
    still_open = [_widened(each, members, still_open) for each in still_open]
    for each in _merged(still_open):
        own = {key for key in each.games if members.get(each.key, {}).get(key) is not None}
        joins = each.finding.scope or now - each.joined_at <= JOIN_SECONDS
        new = {key for key in members.get(each.key, {}) if key not in placed} - own if joins else set[str]()
        new -= {key for other in still_open if other is not each and other.key == each.key for key in other.games}
        active = (own | new) - placed
        waiting = {key for key in each.games if key not in active and _is_recovering(key, causes, evidence)} - placed
        placed |= active | waiting
        after.append(_renewed(each, active, waiting, members.get(each.key, {}), causes, evidence, joined=bool(new)))
    merged = {each.incident_id for each in after}
    after += [replace(each, ended_at=now) for each in still_open if each.incident_id not in merged]
    for key, found in members.items():
        left = {game: each for game, each in found.items() if game not in placed}
        is_new = not any(each.ended_at is None and each.key == key for each in after)
        if left or (is_new and key == _source_key(causes)):
            after.append(_begun(key, left, before, causes, evidence, new_id))
    return order(after)


def _members(causes: Causes, evidence: Evidence) -> dict[_Key, dict[str, Finding]]:
    """Return the games of each cause that are of an incident, by key; the source's is there even without games."""
    found: dict[_Key, dict[str, Finding]] = {}
    source = None if causes.source is None else causes.source.finding
    if source is not None and not source.is_expected:
        about = {} if source.cause != Cause.SOURCE_SILENT else {
            key: source for key, each in evidence.games.items() if _is_quiet(key, each, causes)
        }  # fmt: skip
        found[source.cause, source.scope] = about
    for game, settled in causes.games.items():
        finding = settled.finding
        if finding is not None and _is_incident(evidence.games[game], finding):
            found.setdefault((finding.cause, finding.scope), {})[game] = finding
    return found


def _is_quiet(key: str, window: GameWindow, causes: Causes) -> bool:
    settled = causes.games.get(key)
    return not window.seen.retired and (settled is None or settled.finding is None)


def _is_incident(window: GameWindow, finding: Finding) -> bool:
    """Return whether a person should look: what was stopped on purpose is well, and what is expected is not yet ill."""
    if finding.is_expected:
        return False
    return finding.cause != Cause.OPERATOR or window.seen.in_trouble or window.seen.status.is_recovering


def _is_recovering(key: str, causes: Causes, evidence: Evidence) -> bool:
    """Return whether a game has no cause any more, and is not level yet; its whole past it reads for days."""
    window, settled = evidence.games.get(key), causes.games.get(key)
    if window is None or window.seen.retired or (settled is not None and settled.finding is not None):
        return False
    return window.seen.in_trouble or (window.seen.status.is_recovering and window.seen.status != Status.BACKFILLING)


def _widened(
    incident: Incident, members: Mapping[_Key, Mapping[str, Finding]], still_open: Sequence[Incident]
) -> Incident:
    """Return an incident as its group's, where the group shares by now what all its games have."""
    known = {each.key for each in still_open}
    for (cause, scope), found in members.items():
        is_wider = cause == incident.finding.cause and scope.startswith(_OF_GROUP) and (cause, scope) not in known
        if is_wider and not incident.finding.scope and incident.games and found.keys() >= set(incident.games):
            return replace(incident, finding=replace(incident.finding, scope=scope))
    return incident


def _merged(still_open: Sequence[Incident]) -> list[Incident]:
    """Return open incidents, of several about the same games the oldest: two processes may have opened one each."""
    kept: list[Incident] = []
    for each in sorted(still_open, key=lambda one: (one.since, one.incident_id)):
        same = (one for one in kept if one.key == each.key)
        if not any(each.finding.scope or set(one.games) >= set(each.games) for one in same):
            kept.append(each)
    return kept


def _renewed(
    incident: Incident, active: set[str], waiting: set[str], found: Mapping[str, Finding], causes: Causes,
    evidence: Evidence, *, joined: bool,
) -> Incident:  # fmt: skip
    is_source = incident.key == _source_key(causes)
    joined_at = evidence.now if joined else incident.joined_at
    if not active and not waiting and not is_source:
        if incident.tone == "recovering":
            finding = replace(incident.finding, evidence=recovery((), all_games(incident), incident.since, evidence))
            incident = replace(incident, finding=finding)
        return ended(incident, evidence.now, _subject_of_all(incident, evidence))
    games = _worst_first({*active, *waiting}, evidence)
    if active or is_source:
        worst = _worst(games, found)
        finding = worst or (causes.source.finding if causes.source is not None else None) or incident.finding
        return _made(replace(incident, joined_at=joined_at), finding, games, found, active, evidence)
    outlook = _outlook(games, incident, evidence)
    said = recovery(games, all_games(incident), incident.since, evidence)
    finding = incident.finding.over(_subject_of_all(incident, evidence), said)
    # Its group stays that of the trouble.
    renewed = replace(incident, finding=finding, games=games, outlook=outlook, tone="recovering")
    return replace(renewed, left=_left(incident, games))


def _left(incident: Incident, games: Collection[str]) -> tuple[str, ...]:
    """Return the games that an incident had before and has no more."""
    now = set(games)
    return tuple(key for key in all_games(incident) if key not in now)


def _begun(
    key: _Key, found: Mapping[str, Finding], before: Sequence[Incident], causes: Causes, evidence: Evidence,
    new_id: Callable[[], str],
) -> Incident:  # fmt: skip
    games = _worst_first(found, evidence)
    source = causes.source.finding if causes.source is not None else None
    finding = _worst(games, found) or source
    assert finding is not None, "what has no game is the source's"
    recent = [each for each in before if each.ended_at is not None and each.key == key]
    recent = [each for each in recent if 0 <= evidence.now - (each.ended_at or 0.0) <= REOPEN_SECONDS]
    recent = [each for each in recent if finding.scope or set(each.games) & set(games)]
    is_source = key == _source_key(causes)  # its games are well: since when they are is not when it began
    since = _source_since(causes, evidence) if is_source else min(_since(game, causes, evidence) for game in games)
    again = max(recent, key=lambda each: each.ended_at or 0.0, default=None)
    if again is None:
        blank = Incident(new_id(), finding, games, None, since, None, None, "late", evidence.now)
    else:
        blank = replace(again, ended_at=None, joined_at=evidence.now)
    return _made(blank, finding, games, found, set(games), evidence)


def _since(key: str, causes: Causes, evidence: Evidence) -> float:
    """Return since when a game is in trouble, or else has its cause."""
    seen, settled = evidence.games[key].seen, causes.games.get(key)
    if seen.in_trouble and seen.since is not None:
        return min(seen.since, evidence.now)
    return evidence.now if settled is None else settled.since


def _source_since(causes: Causes, evidence: Evidence) -> float:
    ingest = evidence.source.seen.ingest
    if not ingest.is_live and ingest.since is not None:
        return min(ingest.since, evidence.now)
    newest = evidence.source.seen.newest_at
    if causes.source is not None and key_of(causes.source.finding) == _SILENT and newest is not None:
        return min(newest, evidence.now)
    return evidence.now if causes.source is None else causes.source.since


def _worst(games: Sequence[str], found: Mapping[str, Finding]) -> Finding | None:
    """Return the finding of the worst game, of those at which nobody is if there are such, with something to do.

    `games` has the worst first.
    """
    known = [found[key] for key in games if key in found]
    return min(known, key=lambda each: (each.acting is not None, each.action is None), default=None)


def _made(
    incident: Incident, finding: Finding, games: tuple[str, ...], found: Mapping[str, Finding], active: set[str],
    evidence: Evidence,
) -> Incident:  # fmt: skip
    """Return an incident with the finding of its worst game, and a title of all that have the cause."""
    group = _scoped_group(finding) or _group_of(games, evidence)
    affected = [key for key in games if key in active]
    finding = replace(finding, title=finding.about(_subject_now(finding, games, affected, group, evidence)))
    action = finding.action
    if action is not None and "games" in action.query:
        alike = {key: each.action.kind for key, each in found.items() if each.action is not None}
        about = tuple(key for key in affected if alike.get(key) == action.kind)
        if len(about) > 1:
            query = {**action.query, "games": about[:MOST_LINKED]}
            finding = replace(finding, action=replace(action, query=query))
    made = replace(incident, finding=finding, games=games, group=group, left=_left(incident, games), outlook=None)
    return replace(made, tone=_tone(finding, affected, evidence))


def _subject_of_all(incident: Incident, evidence: Evidence) -> str:
    """Return all games that an incident ever had, for its title."""
    had = all_games(incident)
    if any(key not in evidence.games for key in had):
        return f"{len(had):,} game{'' if len(had) == 1 else 's'}"
    return _subject(had, incident.group, evidence)


def _subject_now(
    finding: Finding, games: Sequence[str], affected: Sequence[str], group: str | None, evidence: Evidence
) -> str:
    """Return the games of a title: those that the incident names, also where some of them recover by now.

    Of a title that is no fact of the past it says how many have the cause still.
    """
    if not affected or len(affected) == len(games) or finding.past is None:
        return _subject(games, group, evidence)
    return f"{len(affected):,} of {len(games):,} games"


def _subject(games: Sequence[str], group: str | None, evidence: Evidence) -> str:
    if len(games) == 1:
        return name_of(evidence.games[games[0]])
    if group is not None and group in evidence.groups and 2 * len(games) >= evidence.groups[group].games:
        return f"{len(games):,} games of group {group}"
    return f"{len(games):,} games"


def _scoped_group(finding: Finding) -> str | None:
    """Return the group whose cause it is: games that were moved out of it since change nothing about it."""
    name = finding.scope.removeprefix(_OF_GROUP)
    return name if name != finding.scope else None


def _group_of(games: Sequence[str], evidence: Evidence) -> str | None:
    groups = {evidence.games[key].seen.group for key in games if key in evidence.games}
    return groups.pop() if len(groups) == 1 else None


def _tone(finding: Finding, affected: Sequence[str], evidence: Evidence) -> IncidentTone:
    seen = [evidence.games[key].seen for key in affected]
    if finding.cause == Cause.INGEST_BEHIND and finding.is_fact:
        return "bad"
    is_bad = any(
        each.status.severity >= Status.UNKNOWN.severity or each.refused_share >= _MOSTLY_REFUSED for each in seen
    )
    return "bad" if is_bad else "late"


def _worst_first(games: Collection[str], evidence: Evidence) -> tuple[str, ...]:
    def badness(key: str) -> tuple[int, float, int, str]:
        seen = evidence.games[key].seen
        age = float("inf") if seen.backlog_seconds is None else seen.backlog_seconds
        return -seen.status.severity, -age, -seen.refused_rows, key

    return tuple(sorted((key for key in games if key in evidence.games), key=badness))


def _outlook(games: Sequence[str], incident: Incident, evidence: Evidence) -> str | None:
    """Return when the game with the oldest backlog, or the source, is level."""
    trends: list[tuple[Point, ...]] = [evidence.games[key].trend for key in games]
    if incident.finding.scope == "source":
        trends.append(evidence.source.trend)
    known = [each for each in trends if each and each[-1].backlog_seconds is not None]
    if not known or len(known) < len(trends):
        return None
    found = look_ahead(max(known, key=lambda each: each[-1].backlog_seconds or 0.0))
    return None if found is None else found.sentence()


def _source_key(causes: Causes) -> _Key | None:
    return key_of(causes.source.finding if causes.source is not None else None)
