"""Each cause is found from windows as they are when it happens, and a calm day has none."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from listeners.status import Status
from pipeline.health.incidents.causes import AGREEING_LOOKS, CLEARING_LOOKS, Acting, Action, Finding, Settled, settle
from pipeline.health.incidents.evidence import (
    GameSeen,
    GroupSeen,
    NewestSchema,
    OpenOperation,
    RegistryWait,
    StreamFailure,
)
from pipeline.health.incidents.judging import judge_cause, judge_source
from pipeline.health.verdicts.liveness import Liveness
from pipeline.health.verdicts.quiet import Quiet, UsualGap
from pipeline.store.database.states import Cause
from tests.checkout import ROOT
from tests.unit.health.incidents.queue_world import (
    FAULTS,
    LEVEL,
    LIVE,
    NOW,
    Fleet,
    Keeper,
    cause_after,
    evidence,
    game,
    look,
)

DEAD = Liveness("dead", NOW - 9, "ended 9 s ago: killed by signal 9", is_over=True)


def found(of: GameSeen, *others: GameSeen, **world: Any) -> Finding:
    """Return the finding of the first game."""
    all_of = evidence(of, *others, **world)
    finding = judge_cause(all_of.games[of.game_key], all_of, judge_source(all_of))
    assert finding is not None
    return finding


# ---------------------------------------------------------------------------------------------------------- one by one


def test_a_well_game_has_no_cause() -> None:
    """Nothing is found of a game that is well, or that has one bad row among thousands."""
    all_of = evidence(game(), game("go", refused={"malformed_payload": 2}), game("ludo", status="CATCHING_UP"))
    assert [judge_cause(each, all_of) for each in all_of.games.values()] == [None] * 3
    assert judge_source(all_of) is None


def test_a_dead_driver_is_the_cause_of_all_its_games() -> None:
    """The finding names the group, what ended it and what else is well, and says who starts it again."""
    dead = GroupSeen("a", DEAD, is_started_here=True, deaths=3)
    ill = game(status="UNKNOWN", backlog_seconds=None)
    finding = found(ill, game("go", "b"), a=dead)
    assert (finding.cause, finding.title) == (Cause.DRIVER_GONE, "Group a lost its driver")
    assert finding.evidence[:2] == (
        "its driver ended 9 s ago: killed by signal 9", "it died 3 times within the last hour"
    )  # fmt: skip
    assert "the other group is well" in finding.excludes
    starting = Acting("the controller", "the controller starts its driver again", NOW - 9)
    assert (finding.action, finding.acting) == (None, starting)
    assert finding.is_fact


def test_a_driver_that_was_restarted_at_once_was_gone() -> None:
    """The controller starts it again before the next look: in a live demo its death was in no incident."""
    starting = GroupSeen("a", Liveness("starting", NOW - 1, "is starting"), last_death="killed by SIGKILL", deaths=1)
    for died_at, cause in ((NOW - 3, Cause.DRIVER_GONE), (NOW - 900, None), (None, None)):
        all_of = evidence(game(status="STARTING"), a=replace(starting, last_death_at=died_at))
        finding = judge_cause(all_of.games["chess"], all_of)
        assert (finding and finding.cause) == cause
    finding = found(game(status="STARTING"), a=replace(starting, last_death_at=NOW - 3))
    assert (finding.title, finding.is_fact) == ("Group a lost its driver", True)
    assert finding.evidence[:2] == ("its driver ended 3 s ago: killed by SIGKILL", "it starts again")


def test_a_driver_that_failed_on_a_full_disk_is_storage() -> None:
    """The error that ended a driver decides, not that it ended."""
    failed = Liveness("failed", NOW, "has failed: OSError: [Errno 28] No space left on device")
    assert found(game(status="UNKNOWN"), a=GroupSeen("a", failed)).cause == Cause.STORAGE


def test_a_game_without_a_group_has_no_driver() -> None:
    """A game that no group carries is not undetermined."""
    finding = found(game(group=None, status="MISSING", reason="no cluster group carries this game"))
    assert (finding.cause, finding.title) == (Cause.DRIVER_GONE, "No group carries Chess")


def test_rows_refused_since_a_schema_change_name_the_version() -> None:
    """The policy's reason and the version stand in the finding, and its neighbours are well."""
    schema = NewestSchema(7, NOW - 60, "ann", "field score became a text")
    well = (game(f"g{each}") for each in range(78))
    finding = found(game(refused={"quarantined_schema": 492}, schema=schema), *well)
    assert (finding.cause, finding.title) == (Cause.SCHEMA, "Rows of Chess refused since schema version 7")
    assert finding.evidence == (
        "492 quarantined_schema in the last 5 min, 3% of its rows",
        "version 7 is kept out of its table: field score became a text",
    )
    assert "its 78 neighbours are well" in finding.excludes
    assert finding.runbook == "turnoutrejectratiohigh"


def test_the_version_that_mends_is_not_accused() -> None:
    """Rows that wait since an older version is kept out are no work of the newest; a replay is what is left."""
    mended = NewestSchema(7, NOW - 37, "ann", None)
    finding = found(game(refused={"quarantined_schema": 400, "unknown_schema": 2}, schema=mended))
    assert (finding.cause, finding.title) == (Cause.SCHEMA, "Rows of Chess refused for their schema")
    assert "version 7, the newest, is not kept out of its table: an older one was" in finding.evidence
    assert finding.action == Action("Replay…", "repairs", {"repair": "replay", "games": "chess"})


def test_rows_of_another_event_type_name_both_types_and_the_way_out() -> None:
    """The newest version may be a good one of the game's own type: the incident names both, and the way out."""
    why = (
        "acme.Sold is another event type than acme.Joined, the game's. If it is that type under a new name, confirm it"
    )
    schema = NewestSchema(7, NOW - 9_000, "main", None, other_type=why)
    finding = found(game(refused={"other_type": 120, "malformed_payload": 3}, landed=50_000, schema=schema))
    assert (finding.cause, finding.title) == (Cause.SCHEMA, "Rows of Chess refused as another event type")
    assert why in finding.evidence
    assert finding.action == Action("Open schemas", "schemas", {"game": "chess"})


def test_a_lost_schema_is_not_a_schema_that_was_never_registered() -> None:
    """A driver's word that its store is an older copy is in the evidence of rows without a schema."""
    says = "says the control store is older than bronze by 1 registration"
    older = GroupSeen("a", Liveness("running", NOW - 900, says))
    finding = found(game(refused={"unknown_schema": 400}), a=older)
    assert finding.title == "Rows of Chess refused for a schema that is not registered"
    assert f"its driver {says}" in finding.evidence


def test_refused_rows_are_raised_at_the_first_look() -> None:
    """They are counted, not inferred: a second look would only be later. Little more than usual waits for it."""
    for rows in ({"malformed_payload": 1200}, {"unknown_schema": 1200}):
        (incident,) = Keeper().see(look(game(refused=rows)))
        assert incident.games == ("chess",)
    assert Keeper().see(look(game(refused={"malformed_payload": 400}))) == ()


def test_rows_that_begin_to_be_refused_are_raised_at_the_next_look() -> None:
    """Five minutes of good rows hid every fourth for half a minute; a share that stays small is still usual."""
    for bad, good, is_raised in ((30, 90, True), (12, 300, False), (9, 0, False)):
        keeper = Keeper()
        keeper.see(look(game(landed=15_000, totals=(40, 90_000))))
        now = game(landed=15_000, refused={"malformed_payload": 40 + bad}, totals=(40 + bad, 90_000 + good))
        found = keeper.see(look(now, now=NOW + 5))
        assert bool(found) is is_raised
        if found:
            assert found[0].finding.evidence[1] == "30 of the last 120 rows"
    restarted = Keeper()
    restarted.see(look(game(landed=15_000, totals=(400, 90_000))))
    now = game(landed=15_000, refused={"malformed_payload": 60}, totals=(60, 20))
    assert restarted.see(look(now, now=NOW + 5)) == (), "a new driver counts anew"


def test_a_version_that_is_kept_out_is_raised_among_many_rows() -> None:
    """No row of it is usual: 60 a second in a busy game were raised half a minute late in a live demo."""
    schema = NewestSchema(7, NOW - 90_000, "ann", "field score became a text")
    held = found(game(refused={"quarantined_schema": 120, "malformed_payload": 300}, landed=50_000, schema=schema))
    assert held is not None
    assert (held.cause, held.title) == (Cause.SCHEMA, "Rows of Chess refused since schema version 7")
    for usual in ({"malformed_payload": 420}, {"quarantined_schema": 20}):
        all_of = evidence(game(refused=usual, landed=50_000, schema=schema))
        assert judge_cause(all_of.games["chess"], all_of) is None


def test_commits_that_take_longer_than_a_minute_are_storage() -> None:
    """Between two of them a driver reports none, and stands still meanwhile: in a live demo that hid the storage."""
    keeper, now = Keeper(), NOW
    source = replace(LEVEL, head_seq=200)

    def see(seconds: float | None, frontier: int, **more: Any) -> Cause | None:
        nonlocal now
        now += 5
        fed = replace(source, newest_at=now - 2, head_seq=200 if more else frontier)
        driver = GroupSeen("a", LIVE, frontier_seq=frontier)
        keeper.see(look(game(commit_seconds=seconds, **more), now=now, source=fed, a=driver))
        finding = keeper.causes.games["chess"].finding
        return None if finding is None else finding.cause

    for number in range(30):
        assert see(0.4, number) is None
    late = {"status": Status.LAGGING, "backlog_seconds": 90.0}
    assert [see(seconds, 100, **late) for seconds in (0.4, 35.0, 35.0)][-1] == Cause.STORAGE
    assert {see(None, 100, **late) for _ in range(20)} == {Cause.STORAGE}


def test_damaged_rows_are_a_schema_only_shortly_after_a_change() -> None:
    """The same refused rows are poison where no schema was registered, or the first one."""
    rows = {"malformed_payload": 400}
    cases = ((NewestSchema(7, NOW - 60, "ann"), Cause.SCHEMA), (NewestSchema(7, NOW - 9_000, "ann"), Cause.POISON),
             (NewestSchema(1, NOW - 60, None), Cause.POISON), (None, Cause.POISON),
             (NewestSchema(5, NOW - 60, None, None, NOW - 61), Cause.POISON),  # with the first one
             (NewestSchema(5, NOW - 60, None, None, NOW - 600), Cause.SCHEMA))  # fmt: skip
    assert [found(game(refused=rows, schema=schema)).cause for schema, _ in cases] == [cause for _, cause in cases]


def test_failures_are_storage_or_the_rows() -> None:
    """A transient failure is storage, one of the rows or a killed worker is poison; a parked stream can be retried."""
    for kind, cause in (("transient", Cause.STORAGE), ("poison", Cause.POISON), ("fatal", Cause.POISON)):
        failure = StreamFailure(kind, "ValueError: row 3", 3, NOW, NOW - 120)
        finding = found(game(status="FAILED", failure=failure))
        assert finding.cause == cause
        assert "parked for 2 min, its retries are used up" in finding.evidence
        assert finding.action is not None
        assert finding.action.query == {"repair": "retry", "games": "chess"}


def test_a_stream_that_its_contract_stopped_says_how_it_goes_on() -> None:
    """The rule is the evidence; a retry, which stops there again, is not offered, also soon after a schema change."""
    said = "Output contract: row 2 of seq 9 of 'Chess' breaks rule sales/price on column 'price'"
    failure = StreamFailure("poison", said, 1, NOW, NOW - 120, by_contract=True)
    finding = found(game(status="FAILED", failure=failure, schema=NewestSchema(7, NOW - 60, "ann")))
    assert (finding.cause, finding.title) == (Cause.CONTRACT, "The output contract of Chess stopped its stream")
    assert finding.evidence[:2] == (said, "stopped for 2 min")
    assert finding.action is not None
    assert "repair" not in finding.action.query
    assert finding.advice is not None


def test_rows_that_a_contract_refuses_are_not_damaged() -> None:
    """Most refused rows break a rule of the contract: the cause is the contract, not the rows' bytes."""
    finding = found(game(refused={"contract": 400, "malformed_payload": 20}))
    assert (finding.cause, finding.action and finding.action.query["rows"]) == (Cause.CONTRACT, "refused")
    assert found(game(refused={"contract": 20, "malformed_payload": 400})).cause == Cause.POISON


def test_what_retries_by_itself_offers_no_retry() -> None:
    """A stream that waits for storage promises no act of turnout's: the advice names the disk by host and path."""
    for error, advice in (
        ("OSError: [Errno 28] No space left on device: '/data/tables/chess/1.parquet'",
         "Free space on node7:/data/tables/chess/1.parquet; streams retry by themselves"),
        ("OSError: No space left on device", "Free space on node7; streams retry by themselves"),
        ("OSError: slow down", "Mend the storage of node7; streams retry by themselves"),
    ):  # fmt: skip
        failure = StreamFailure("transient", error, 3, NOW)
        finding = found(game(status="FAILED", failure=failure), a=GroupSeen("a", LIVE, host="node7"))
        assert (finding.cause, finding.action, finding.advice) == (Cause.STORAGE, None, advice)
    parked = StreamFailure("transient", "OSError: slow down", 10, NOW, NOW - 60)
    finding = found(game(status="FAILED", failure=parked))
    assert finding.action is not None
    assert finding.advice == "Mend the storage to which its driver writes; then retry"


def test_a_registry_that_is_away_holds_a_game() -> None:
    """The registry is named, with the number of schemas, and that no row is refused for it."""
    need = RegistryWait("main", 3, NOW - 300, "away", "connection refused")
    finding = found(game(status="LAGGING", waits_for="waits for schema 7 of registry main", need=need))
    assert (finding.cause, finding.title) == (Cause.REGISTRY, "Rows of Chess held until registry main answers")
    assert "3 schemas wanted from registry main for 5 min" in finding.evidence
    assert "registry main is away: connection refused" in finding.evidence
    assert "no row is refused for it: rows wait in bronze" in finding.excludes


def test_documents_whose_shapes_are_not_registered_hold_a_game() -> None:
    """No registry is blamed for what a driver registers from bronze itself."""
    need = RegistryWait("shapes", 1, NOW - 300)
    waits_for = "waits for shapes of the event type 'move', which cannot be registered"
    for each in (need, None):  # the store has the need no more once they are registered
        finding = found(game(status="LAGGING", waits_for=waits_for, need=each))
        assert finding.title == "Rows of Chess held until the shapes of documents are registered"
        assert finding.about("3 games") == "Rows of 3 games held until the shapes of documents are registered"
        assert not any("registry" in one for one in finding.evidence)


def test_an_operation_explains_trouble_of_its_games() -> None:
    """An open operation explains trouble of its games, also through their group; the controller's own does not."""
    operation = OpenOperation("0af3" * 8, "move", "ann", NOW - 30)
    finding = found(game(status="LAGGING", operation=operation))
    assert (finding.cause, finding.title) == (Cause.OPERATOR, "Move by ann is not done yet")
    assert finding.action is not None
    assert finding.action.query == {"operation": "0af30af3"}
    of_group = GroupSeen("a", DEAD, operation=replace(operation, kind="restart"))
    assert found(game(status="UNKNOWN"), a=of_group).cause == Cause.OPERATOR
    evacuated = GroupSeen("a", DEAD, operation=replace(operation, actor="(controller)"))
    assert found(game(status="UNKNOWN"), a=evacuated).cause == Cause.DRIVER_GONE


def test_a_dead_driver_is_no_work_of_an_operation_that_did_not_end_it() -> None:
    """One death is one cause for all games, whatever people have open about them or their group."""
    restart = OpenOperation("0af3" * 8, "restart", "ann", NOW - 30)
    others = (
        replace(restart, is_stuck=True), replace(restart, is_planned=True), replace(restart, requested_at=NOW - 5),
        replace(restart, kind="start"),
    )  # fmt: skip
    for operation in others:
        gone = found(game(status="UNKNOWN"), a=GroupSeen("a", DEAD, operation=operation))
        assert (gone.cause, gone.evidence[2]) == (Cause.DRIVER_GONE, f"{operation.kind} by ann is not done yet")
    move = replace(restart, kind="move")
    half = [game(f"g{each}", status="UNKNOWN", operation=move if each < 5 else None) for each in range(10)]
    (incident,) = Keeper().see(look(*half, a=GroupSeen("a", DEAD)))
    assert (incident.finding.cause, len(incident.games)) == (Cause.DRIVER_GONE, 10)
    starting = GroupSeen("a", Liveness("starting", NOW - 1, "is starting"), last_death="killed", last_death_at=NOW - 3)
    again = found(game(status="UNKNOWN", operation=move), a=replace(starting, deaths=1))
    assert (again.cause, again.title) == (Cause.DRIVER_GONE, "Group a lost its driver")


def test_the_evidence_names_the_starter_of_a_dead_driver() -> None:
    """Nobody waits for a controller that is not there, or that has given up."""
    dead = GroupSeen("a", DEAD, is_started_here=True)
    cases = ((dead, "the controller starts it again"),
             (replace(dead, is_started_here=False), "turnout does not start it"),
             (replace(dead, no_controller="no controller runs"), "no controller runs, so nothing starts it again"),
             (replace(dead, is_given_up=True), "the controller has given it up"))  # fmt: skip
    for driver, said in cases:
        assert found(game(status="UNKNOWN"), a=driver).evidence[1] == said


def test_a_pause_is_known_and_no_trouble() -> None:
    """A paused game has the operator as its cause, and is part of no incident."""
    keeper, paused = Keeper(), game(status="PAUSED", paused_by="ann", paused_at=NOW - 60)
    for _ in range(5):
        assert keeper.see(look(paused)) == ()
    settled = keeper.causes.games["chess"].finding
    assert settled is not None
    assert (settled.cause, settled.title) == (Cause.OPERATOR, "Chess paused on purpose")


def test_ingest_is_the_cause_of_games_beyond_bronze() -> None:
    """Games that have all of bronze share the finding of the source, whatever it is."""
    sentence = "ingest is 70 s behind its source: 9 rows wait"
    late = replace(LEVEL, condition="late", sentence=sentence, age_seconds=70.0)
    finding = found(game(status="LAGGING", waits_for_ingest=True), source=late)
    assert (finding.cause, finding.scope) == (Cause.INGEST_BEHIND, "source")
    down = replace(LEVEL, condition="unknown", ingest=DEAD)
    assert found(game(status="UNKNOWN", waits_for_ingest=True), source=down).title == "Ingest went down"


def test_a_source_is_silent_only_beyond_its_own_gaps() -> None:
    """Five minutes without a row are silence where gaps are of seconds, and none where they are of minutes.

    The finding says what is usual and why, and counts at the first look.
    """
    usual = UsualGap(4.0, "within the last hour", 12.0)
    quiet = replace(LEVEL, newest_at=NOW - 300, quiet=Quiet(300.0, usual))
    finding = judge_source(evidence(game(), source=quiet))
    assert finding is not None
    assert (finding.cause, finding.is_fact) == (Cause.SOURCE_SILENT, True)
    assert finding.evidence == (
        "no row for at least 5 min", "its longest gap within the last hour was 4 s: silent from 12 s on"
    )  # fmt: skip
    assert (finding.advice or "").startswith("turnout is well: start the producers")
    for well in (Quiet(300.0, replace(usual, seconds=100.0, limit=300.0)), Quiet(300.0, None), None):
        assert judge_source(evidence(game(), source=replace(quiet, quiet=well))) is None


def test_nothing_known_is_undetermined_and_says_what_is() -> None:
    """A late game without evidence of a cause gets no made-up one."""
    where = {"queue": 41.0, "process": 3.0, "commit": 0.4}
    finding = found(game(status="STALLED", backlog_seconds=200.0, segments=where), game("go"))
    assert (finding.cause, finding.title) == (Cause.UNDETERMINED, "Chess stood still, cause not determined")
    assert finding.evidence[:2] == (
        "status STALLED, age of its backlog 3 min", "its latency is 41.0 s queue and 3.0 s process"
    )  # fmt: skip
    assert finding.excludes == ("its 1 neighbour is well", "the source is level")


def test_troubled_neighbours_are_evidence_and_never_what_a_cause_is_not() -> None:
    """Neighbours, groups and a source in trouble exclude nothing: only what is well stands under it."""
    blind = replace(LEVEL, condition="unknown", sentence="what waits in the source is unknown")
    ill: dict[str, Any] = {"status": Status.STALLED, "backlog_seconds": 200.0}
    failure = StreamFailure("poison", "ValueError: row 17", 1, NOW)
    kinds: list[dict[str, Any]] = [{}, {"failure": failure}, {"refused": {"malformed_payload": 9_000}}]
    for own in kinds:
        for others, said in (
            (("go", "ludo", "risk"), "all its 3 neighbours are in trouble, too"),
            (("go", "ludo"), "2 of its 3 neighbours are in trouble, too"),
            (("go",), "1 of its 3"),
        ):
            near = [game(key, **ill) if key in others else game(key) for key in ("go", "ludo", "risk")]
            finding = found(game(**{**ill, **own}), *near, source=blind)
            assert any(each.startswith(said) for each in finding.evidence), finding
            assert not [each for each in finding.excludes if "neighbour" in each or "source" in each]
    dead = GroupSeen("b", DEAD)
    finding = found(game(status="UNKNOWN"), game("go", "b", "UNKNOWN"), source=blind, a=GroupSeen("a", DEAD), b=dead)
    assert finding.excludes == ()
    assert finding.evidence[-2:] == ("the other group is in trouble, too", "the source is unknown")


def test_foreign_texts_are_escaped_and_cut() -> None:
    """A name or a message cannot control a terminal, turn a line round, or fill a page."""
    failure = StreamFailure("poison", "ValueError: \x1b[2Jrow\n" + "x" * 999, 1, NOW)
    finding = found(game("k" * 12, status="FAILED", failure=failure, game="\u202eab" + "n" * 99 + "{}"))
    texts = (finding.title, *finding.evidence, finding.about("{}"))
    assert all(each.isprintable() and len(each) < 260 for each in texts)
    assert finding.title.startswith("Commits of \\u202eab")


def test_runbooks_of_findings_exist() -> None:
    """Each runbook that a finding names is a page."""
    named = {
        word
        for path in (ROOT / "pipeline/health/incidents").glob("*.py")
        for word in path.read_text("utf-8").split('"')
        if word.startswith("turnout") and word.isalpha()
    }
    assert named
    assert {each for each in named if not (ROOT / f"docs/runbooks/{each}.md").exists()} == set()


# ---------------------------------------------------------------------------------------------------------- hysteresis


def finding(cause: Cause, *, is_fact: bool = False) -> Finding:
    return Finding(cause, "It is", (), (), None, None, is_fact=is_fact)


def causes(looks: Sequence[Finding | None]) -> list[Cause | None]:
    """Return the settled cause after each look."""
    settled: Settled | None = None
    said = []
    for number, each in enumerate(looks):
        settled = settle(settled, each, NOW + number)
        said.append(None if settled.finding is None else settled.finding.cause)
    return said


def test_a_cause_changes_after_looks_that_agree() -> None:
    """One look changes nothing, a recorded fact does; an inferred or counted cause ends after three looks."""
    slow, full = finding(Cause.DRIVER_SLOW), finding(Cause.CAPACITY)
    assert (AGREEING_LOOKS, CLEARING_LOOKS) == (2, 3)
    assert causes([slow, slow, full, slow, full, full]) == [None, *[Cause.DRIVER_SLOW] * 4, Cause.CAPACITY]
    refused = finding(Cause.SCHEMA, is_fact=True)
    assert causes([refused, None, None, None]) == [*[Cause.SCHEMA] * 3, None]
    assert causes([slow, slow, None, None, slow, None, None, None]) == [None, *[Cause.DRIVER_SLOW] * 6, None]


def test_a_recorded_cause_is_over_at_the_first_look_without_it() -> None:
    """A sentence is true when it is shown: a driver that is back is not gone for two more looks."""
    slow, gone = finding(Cause.DRIVER_SLOW), finding(Cause.DRIVER_GONE, is_fact=True)
    assert causes([gone, None, gone]) == [Cause.DRIVER_GONE, None, Cause.DRIVER_GONE]
    assert causes([gone, slow, slow]) == [Cause.DRIVER_GONE, None, Cause.DRIVER_SLOW]
    assert causes([*[finding(Cause.DRIVER_GONE)] * 2, None]) == [None, Cause.DRIVER_GONE, None], "it beats again"
    mended = replace(slow, acting=Acting("ann", "restart 0af30af3 by ann is under way", NOW))
    assert causes([slow, slow, mended, None]) == [None, *[Cause.DRIVER_SLOW] * 2, None]


def test_the_newest_evidence_of_the_same_cause_counts_at_once() -> None:
    """A number in the evidence is never older than the last look, and since stays."""
    first, second = finding(Cause.STORAGE, is_fact=True), replace(finding(Cause.STORAGE), evidence=("2 failures",))
    settled = settle(settle(None, first, NOW), second, NOW + 5)
    assert (settled.finding, settled.since) == (second, NOW)


# --------------------------------------------------------------------------------------------------- faults and causes


def right(cause: Cause, runs: int) -> tuple[int, list[str]]:
    """Return how often the cause was found in a number of seeded runs, and which were wrong."""
    wrong = []
    for number in range(runs):
        fault = FAULTS[cause][number % len(FAULTS[cause])]
        said = cause_after(fault, f"{fault.__name__}/{number}")
        if said != cause:
            wrong.append(f"{fault.__name__}/{number}: {said}")
    return runs - len(wrong), wrong


@pytest.mark.parametrize("cause", FAULTS)
@pytest.mark.proves("G210")
def test_faults_have_their_cause(cause: Cause) -> None:
    """A seeded fault of each kind is found for what it is."""
    runs = len(FAULTS[cause])
    found_right, wrong = right(cause, runs)
    assert found_right == runs, wrong


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nine_of_ten_faults_have_their_cause() -> None:
    """Of 200 seeded faults of each cause at least 90 in 100 are found for what they are, as the table printed says."""
    table = {cause: right(cause, 200) for cause in FAULTS}
    lines = [f"{cause:<24} {number / 2:5.1f} %  {'; '.join(wrong[:3])}" for cause, (number, wrong) in table.items()]
    sys.stdout.write("\n".join(lines))
    assert {cause: wrong for cause, (number, wrong) in table.items() if number < 180} == {}


@pytest.mark.proves("G210")
def test_a_calm_day_raises_nothing() -> None:
    """A day with its night, gaps, bursts, single bad rows, a pause and a planned move has no incident."""
    fleet, keeper, random = Fleet.made("calm"), Keeper(), Random("calm")
    seconds, looks = 60.0, 1_440
    for number in range(looks):
        hour = number * seconds / 3600
        fleet.factor = (0.1 if hour < 6 else 1.0) * (random.uniform(1.2, 1.6) if random.random() < 0.05 else 1.0)
        fleet.arriving = hour >= 6 or random.random() > 0.5
        fleet.gap = 200.0 if hour < 7 else 40.0
        if number == 450:
            next(iter(fleet.games.values())).seen = {"paused_by": "ann", "paused_at": fleet.now}
        if number in {750, 752}:
            operation = OpenOperation("0af3" * 8, "move", "ann", fleet.now)
            list(fleet.games.values())[1].seen = {"operation": operation} if number == 750 else {}
        assert keeper.see(fleet.look(seconds)) == (), number
    assert keeper.kept == {}
    assert keeper.evidence is not None
    assert keeper.evidence.source.seen.ingest == LIVE
