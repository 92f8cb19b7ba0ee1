"""The headlines of all pages of one situation, as the pages make them, and the laws that they keep together."""

from collections.abc import Collection, Mapping
from typing import Final

from pipeline.health.headlines.pages import (
    OF_ACCESS,
    OF_SCHEMAS,
    Headline,
    of_fleet,
    of_game,
    of_groups,
    of_operations,
    of_repairs,
    of_subject,
)
from pipeline.health.headlines.standings import Situation, is_own_trouble

WITH_A_SUBJECT: Final = {"schemas": OF_SCHEMAS, "access": OF_ACCESS, "books": (), "games": (), "audit": ()}
"""Pages with a sentence of their own, and the causes of the incidents that they are about."""


CALM: Final = "all is as it should be"
"""The sentence of a page with a subject of its own while that is well."""


def headlines(of: Situation, stopped: Collection[str] = (), opened: int = 0, stuck: int = 0) -> dict[str, Headline]:
    """Return the headline of each page but Game by its name; of pages with a subject, while that is well."""
    found = {
        "fleet": of_fleet(of),
        "groups": of_groups(of),
        "repairs": of_repairs(of, stopped),
        "operations": of_operations(of, opened, stuck),
    }
    own = Headline(CALM, "well")
    return found | {page: of_subject(own, of, causes) for page, causes in WITH_A_SUBJECT.items()}


def check(of: Situation, stopped: Collection[str] = (), opened: int = 0, stuck: int = 0) -> None:
    """Fail where a headline contradicts what stands, or another page's."""
    made = headlines(of, stopped, opened, stuck)
    games = {each.game_key: of_game(of, each) for each in of.games}
    _check_calm(of, made)
    _check_nothing_is_hidden(of, {**made, **games})
    _check_severities(of, {**made, **games})
    for each in of.games:
        severity, tone = of.severity_of(each), games[each.game_key].tone
        assert tone == severity if severity is not None else tone in {"well", "plain"}, (each.game_key, severity, tone)
    assert made["fleet"].tone in {"late", "bad"} or of.judgement.healthy, made["fleet"]


def _check_calm(of: Situation, made: Mapping[str, Headline]) -> None:
    """Nothing is green or healthy while anything stands, or nobody knows the incidents."""
    judgement = of.judgement
    stands = bool(
        of.opened
        or judgement.problems
        or judgement.quiet_since is not None
        or any(each.liveness.state == "starting" for each in judgement.starting)
        or any(is_own_trouble(each.verdict) for each in of.games)
    )
    assert bool(of.standings) or not stands, "all that is wrong stands"
    for page, said in made.items():
        if stands or of.incidents is None:
            assert said.tone != "well", (page, said)
            assert "healthy" not in said.line, (page, said)
        assert said.text == CALM or CALM not in said.line, (page, said)


def _check_nothing_is_hidden(of: Situation, made: Mapping[str, Headline]) -> None:
    """Each page is as warm as the worst that stands, or names that beside its sentence."""
    trouble = [each for each in of.standings if each.is_trouble]
    for page, said in made.items():
        shown = {said.tone, None if said.elsewhere is None else said.elsewhere.severity}
        assert not trouble or "bad" in shown or trouble[0].severity in shown, (page, said)
        if not of.standings:
            assert said.elsewhere is None, (page, said)


def _check_severities(of: Situation, made: Mapping[str, Headline]) -> None:
    """A page that names a thing first gives it the severity and the beginning that it has in the list of all."""
    for page, said in made.items():
        named = [each for each in of.standings if said.text.partition(": recovering")[0].startswith(each.text)]
        if named and page not in {each.game_key for each in of.games}:
            assert said.tone in {each.severity for each in named}, (page, said, named)
            assert said.since in {each.since for each in named}, (page, said, named)
        assert said.since is None or said.since <= of.now, (page, said)
