"""Drift: each way in which a catalog can differ is found once, said in a sentence, and can be acted on."""

from dataclasses import replace
from random import Random

import pytest

from grants.catalog import Change
from grants.model import Observed, Principal, Securable
from grants.planning.change_set import simulate
from grants.planning.drift import Drift, DriftFinding, drift, intent
from grants.planning.entitlements import NO_GAME, NOTHING, AccessIntent, ManagedAccess, ManagedGrant
from grants.planning.plan import plan
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import CATALOG, SCHEMA, catalog_snapshot, random_catalog, recreated, table_of

NOW = 1_000.0


def kept(observed: Observed, *intents: AccessIntent) -> tuple[Observed, ManagedAccess]:
    planned = plan(observed, intents, NOTHING, NOW)
    return simulate(observed, planned.changes), planned.after


def chess(until: float | None = None) -> AccessIntent:
    return AccessIntent("ann@x", "chess", read=True, until=until, reason="r")


def found(observed: Observed, managed: ManagedAccess, now: float = NOW) -> Drift:
    return drift(observed, managed, now, {})


def only(observed: Observed, managed: ManagedAccess, now: float = NOW) -> DriftFinding:
    (one,) = found(observed, managed, now).findings
    return one


def acted(observed: Observed, managed: ManagedAccess, finding: DriftFinding, act: str, now: float = NOW) -> Drift:
    """Return the drift after an act about a finding."""
    done = plan(observed, [intent(finding, act, "because")], managed, now)  # type: ignore[arg-type]  # of a case
    return found(simulate(observed, done.changes), done.after, now)


def changed(observed: Observed, securable: object, who: str, *, add: str = "", remove: str = "") -> Observed:
    change = Change(securable, who, (add,) if add else (), (remove,) if remove else ())  # type: ignore[arg-type]
    return simulate(observed, [change])


def without(observed: Observed, who: str) -> Observed:
    principals = {name: each for name, each in observed.directory.principals.items() if name != who}
    return replace(observed, directory=replace(observed.directory, principals=principals))


@pytest.mark.proves("G126")
def test_what_turnout_did_has_not_drifted() -> None:
    """A catalog as plans left it has no finding, whoever was given what."""
    assert found(*kept(catalog_snapshot(), chess(), chess(NOW + 5))).findings == ()
    assert found(catalog_snapshot(), NOTHING) == Drift((), ())


def test_drift_of_an_address_that_belongs_to_another_person_says_so() -> None:
    """An address that was given to somebody else names another person: a lost grant is not offered to them again."""

    def seen(principal_id: str, held: set[str]) -> Observed:
        granted = {table_of("chess"): {"ann@x": held}, CATALOG: {"ann@x": {"USE_CATALOG"}}}
        found = catalog_snapshot({**granted, SCHEMA: {"ann@x": {"USE_SCHEMA"}}})
        ann = Principal("ann@x", "user", principal_id=principal_id)
        people = {**found.directory.principals, "ann@x": ann}
        return replace(found, directory=replace(found.directory, principals=people))

    done = plan(seen("1", set()), [AccessIntent("ann@x", "chess", read=True, reason="n")], NOTHING, 0.0).after
    (same,) = drift(seen("1", set()), done, 1.0, {}).findings
    assert (same.kind, "another person" in same.sentence, "revert" in same.acts) == ("missing", False, True)
    (other,) = drift(seen("2", set()), done, 1.0, {}).findings
    assert (other.kind, "another person" in other.sentence, other.acts) == ("missing", True, ("adopt", "ignore"))
    assert drift(seen("1", {"SELECT"}), done, 1.0, {}).findings == ()


def test_a_strangers_grant_is_extra_and_can_be_adopted_or_reverted() -> None:
    """A SELECT that turnout does not know is found; either act ends that."""
    observed, managed = kept(catalog_snapshot(), chess())
    stranger = changed(observed, table_of("go"), "Ann@X", add="SELECT")
    extra = only(stranger, managed)
    assert (extra.kind, extra.acts) == ("extra", ("adopt", "revert", "ignore"))
    assert extra.sentence == "Ann@X has SELECT on table main.games.go, and turnout knows no grant of it."
    assert acted(stranger, managed, extra, "adopt").findings == ()
    assert acted(stranger, managed, extra, "revert").findings == ()


@pytest.mark.parametrize(
    ("securable", "privilege", "sentence"),
    [
        (
            table_of("chess"),
            "SELECT",
            "ann@x was granted chess, but SELECT is missing: ann@x does not read it.",
        ),
        (SCHEMA, "USE_SCHEMA", "ann@x was granted chess, but USE_SCHEMA is missing: ann@x does not read it."),
    ],
)
def test_a_grant_that_was_taken_by_hand_is_missing(securable: object, privilege: str, sentence: str) -> None:
    """What turnout gave and is not there is found, and given again or given up."""
    observed, managed = kept(catalog_snapshot(), chess())
    taken = changed(observed, securable, "ann@x", remove=privilege)
    missing = only(taken, managed)
    assert (missing.kind, missing.privileges, missing.sentence) == ("missing", (privilege,), sentence)
    for act in ("adopt", "revert"):
        assert acted(taken, managed, missing, act).findings == ()


def test_a_grant_whose_time_has_come_is_expired() -> None:
    """It is found from its last second on while it is there, and revoking it ends that."""
    observed, managed = kept(catalog_snapshot(), chess(NOW + 5))
    assert found(observed, managed, NOW + 4).findings == ()
    expired = only(observed, managed, NOW + 5)
    assert (expired.kind, expired.acts) == ("expired", ("revert", "ignore"))
    assert acted(observed, managed, expired, "revert", NOW + 5) == Drift((), ())
    both, managed = kept(catalog_snapshot(), chess(NOW + 5), chess())
    assert found(both, managed, NOW + 5).findings == ()


def left_over(observed: Observed) -> tuple[Observed, ManagedAccess]:
    """Return it with USE_* that turnout gave for a game which it took again, while a stranger's grant held them."""
    given, managed = kept(observed, chess())
    held = changed(given, table_of("go"), "ann@x", add="SELECT")
    taken = plan(held, [AccessIntent("ann@x", "chess", read=False, reason="r")], managed, NOW)
    return changed(simulate(held, taken.changes), table_of("go"), "ann@x", remove="SELECT"), taken.after


def test_use_that_turnout_gave_and_nobody_needs_can_be_taken() -> None:
    """What is left over above the tables is found, and one revert takes all of it; then turnout keeps nothing."""
    observed, managed = left_over(catalog_snapshot())
    findings = found(observed, managed).findings
    assert [(each.privileges, each.acts) for each in findings] == [
        (("USE_CATALOG",), ("revert", "ignore")), (("USE_SCHEMA",), ("revert", "ignore")),
    ]  # fmt: skip
    for each in findings:
        done = plan(observed, [intent(each, "revert", "because")], managed, NOW)
        assert [change.remove for change in done.changes] == [("USE_SCHEMA",), ("USE_CATALOG",)]
        assert (done.unmoved, done.after) == ((), NOTHING)
        assert acted(observed, managed, each, "revert").findings == ()
    with pytest.raises(Refused, match="cannot adopt this finding"):
        intent(findings[0], "adopt", "because")


@pytest.mark.parametrize("key", ["main", "games"])
def test_a_game_called_like_the_schema_is_not_meant(key: str) -> None:
    """What is left over is reverted without touching a game that is called as what it lies in."""
    observed, managed = left_over(catalog_snapshot(keys=("chess", "go", key)))
    for each in found(observed, managed).findings:
        meant = intent(each, "revert", "because")
        assert meant.key == NO_GAME
        done = plan(changed(observed, table_of(key), "bob@x", add="SELECT"), [meant], managed, NOW)
        assert {change.securable for change in done.changes} == {SCHEMA, CATALOG}
    for forged in ({"read": True}, {"read": False, "revert": True}, {"read": False, "until": NOW}):
        with pytest.raises(Refused, match="Name the game"):
            AccessIntent("ann@x", NO_GAME, **forged)


def test_use_that_somebody_reads_by_is_told_with_who_and_not_taken() -> None:
    """A group's USE_* without a game stay while a member reads by them: the finding has no act but to ignore it."""
    direct = {SCHEMA: {"readers": {"USE_SCHEMA"}}, CATALOG: {"readers": {"USE_CATALOG"}},
              table_of("chess"): {"bob@x": {"SELECT"}}, table_of("go"): {"bob@x": {"SELECT"}}}  # fmt: skip
    observed = catalog_snapshot(direct, groups={"bob@x": {"readers"}})
    use = {ManagedGrant(SCHEMA, "readers", "USE_SCHEMA"), ManagedGrant(CATALOG, "readers", "USE_CATALOG")}
    managed = ManagedAccess(given=frozenset(use))
    _, schema, *_ = found(observed, managed).findings
    assert (schema.privileges, schema.acts) == (("USE_SCHEMA",), ("ignore",))
    assert schema.sentence == (
        "readers still has USE_SCHEMA on schema main.games, but no grant of turnout's needs it. bob@x reads chess "
        "by it (2 cells in all): revoke it when nobody does."
    )
    forced = plan(observed, [AccessIntent("readers", NO_GAME, read=False, reason="r")], managed, NOW)
    assert forced.is_empty
    assert [each.reads is each.intent.read for each in forced.unmoved] == [False, False]
    assert "readers keeps USE_SCHEMA on schema main.games: " in forced.unmoved[0].sentence


def test_use_that_turnout_did_not_give_or_that_is_needed_is_not_reverted() -> None:
    """A wish about what is left over takes nothing of anybody else's, and nothing a newer game rests on."""
    by_hand = catalog_snapshot({SCHEMA: {"ann@x": {"USE_SCHEMA"}}, CATALOG: {"ann@x": {"USE_CATALOG"}}})
    about = [AccessIntent("ann@x", NO_GAME, read=False, reason="r")]
    assert found(by_hand, NOTHING).findings == ()
    assert plan(by_hand, about, NOTHING, NOW).is_empty
    assert plan(*kept(catalog_snapshot(), chess())[:1], about, kept(catalog_snapshot(), chess())[1], NOW).is_empty
    observed, managed = left_over(catalog_snapshot())
    assert plan(changed(observed, table_of("go"), "ann@x", add="SELECT"), about, managed, NOW).is_empty


def test_a_table_that_was_made_anew_is_found_with_what_was_lost() -> None:
    """Grants are bound to a table's id: its games are given again, or given up."""
    observed, managed = kept(catalog_snapshot(), chess())
    anew = recreated(observed, "chess")
    finding = only(anew, managed)
    assert (finding.kind, finding.sentence) == (
        "recreated", "The table of chess was recreated after ann@x was granted it: ann@x lost SELECT."
    )  # fmt: skip
    for act in ("adopt", "revert"):
        assert acted(anew, managed, finding, act).findings == ()
    again = changed(anew, table_of("chess"), "ann@x", add="SELECT")
    regranted = only(again, managed)
    assert (regranted.kind, regranted.acts) == ("recreated", ("adopt", "ignore"))
    assert acted(again, managed, regranted, "adopt").findings == ()


def test_a_table_that_is_gone_is_missing() -> None:
    """An entitlement without a table is told of; giving it up is what can be done here."""
    observed, managed = kept(catalog_snapshot(), chess())
    tables = {key: table for key, table in observed.tables.items() if key != "chess"}
    missing = only(replace(observed, tables=tables), managed)
    assert (missing.kind, missing.acts) == ("missing", ("adopt", "ignore"))
    assert "the catalog has no such table" in missing.sentence


@pytest.mark.proves("G266")
def test_a_principal_that_the_workspace_does_not_list_is_not_gone() -> None:
    """A group of the account may have members whom the workspace does not list: no click takes its grant."""
    observed = catalog_snapshot({table_of("chess"): {"auditors": {"SELECT"}}})
    observed = replace(observed, directory=replace(observed.directory, is_whole=False))
    finding = only(observed, NOTHING)
    assert (finding.kind, finding.acts) == ("unclear", ("ignore",))
    assert "auditors holds SELECT" in finding.sentence
    assert "is not known in this workspace" in finding.sentence
    takes = AccessIntent("auditors", "chess", read=False, reason="audit is over", revert=True)
    planned = plan(observed, [takes], NOTHING, NOW)
    assert "does not show who is in auditors: who loses by it is not known" in " ".join(planned.warnings)


def test_who_is_gone_or_not_active_is_found_and_their_grants_can_go() -> None:
    """An entitlement or a stranger's grant of somebody who left is found; of a deleted name nothing can be taken."""
    observed, managed = kept(catalog_snapshot(), chess())
    left = found(without(observed, "ann@x"), managed)
    assert [each.kind for each in left.findings] == ["gone"]
    assert acted(without(observed, "ann@x"), managed, left.findings[0], "revert").findings == ()
    principals = {**observed.directory.principals, "ann@x": Principal("ann@x", "user", active=False)}
    off = replace(observed, directory=replace(observed.directory, principals=principals))
    assert only(off, managed).sentence.startswith("ann@x holds a grant on chess but is not active")
    stranger = changed(catalog_snapshot(), table_of("chess"), "eve@x", add="SELECT")
    assert acted(stranger, NOTHING, only(stranger, NOTHING), "revert").findings == ()
    nameless = only(changed(catalog_snapshot(), table_of("chess"), "", add="SELECT"), NOTHING)
    assert (nameless.kind, nameless.acts, nameless.sentence.split()[:2]) == (
        "gone",
        ("ignore",),
        ["A", "deleted"],
    )


@pytest.mark.parametrize("privilege", ["SELECT", "ALL_PRIVILEGES"])
def test_more_than_was_declared_is_broader(privilege: str) -> None:
    """A grant on all tables is found with how many games it opens, and turnout does not touch it."""
    observed, managed = kept(catalog_snapshot(), chess())
    broad = only(changed(observed, SCHEMA, "ann@x", add=privilege), managed)
    assert (broad.kind, broad.acts) == ("broader", ("ignore",))
    assert broad.sentence == (
        f"ann@x holds {privilege} on schema main.games: that counts for all 2 games, and 1 were declared. Its owner "
        "can revoke it there; turnout does not."
    )
    table = only(changed(observed, table_of("go"), "ann@x", add="ALL_PRIVILEGES"), managed)
    assert (table.kind, table.acts) == ("broader", ("ignore",))


@pytest.mark.proves("G238")
@pytest.mark.parametrize("privilege", ["MODIFY", "ALL_PRIVILEGES"])
@pytest.mark.parametrize("where", [CATALOG, SCHEMA, table_of("chess")])
def test_who_may_write_to_a_table_in_an_object_store_is_a_risk(where: Securable, privilege: str) -> None:
    """Nobody else may commit where no lock is shared: a right to write there is drift, in a folder not."""
    plain = changed(catalog_snapshot(), where, "ann@x", add=privilege)
    for location, risky in (("s3://bucket/tables/", True), ("file:///tables/", False), ("", False)):
        tables = {key: replace(each, location=location and location + key) for key, each in plain.tables.items()}
        risks = [each for each in found(replace(plain, tables=tables), NOTHING).findings if each.kind == "writing"]
        assert [each.principal for each in risks] == ["ann@x"] * risky
        if risky:
            assert f"ann@x holds {privilege} on " in risks[0].sentence
            assert ("the table of chess" if where.type == "table" else "2 tables of games") in risks[0].sentence
            assert risks[0].acts == ("ignore",)


def test_a_privilege_that_nobody_knows_is_found_wherever_it_is() -> None:
    """What may mean anything is never dropped."""
    unknown = only(changed(catalog_snapshot(), CATALOG, "ann@x", add="READ_DREAMS"), NOTHING)
    assert (unknown.kind, unknown.sentence) == (
        "unknown", "ann@x holds READ_DREAMS on catalog main: turnout does not know its effect."
    )  # fmt: skip


def test_what_is_ignored_stays_counted_with_its_reason() -> None:
    """A finding that somebody decided to leave is no open one, and is counted as what it is."""
    stranger = changed(catalog_snapshot(), table_of("go"), "ann@x", add="SELECT")
    ignored = drift(stranger, NOTHING, NOW, {only(stranger, NOTHING).mark: "a test account"})
    assert (ignored.open, ignored.counts, ignored.ignored_counts) == ((), {"extra": 1}, {"extra": 1})
    assert ignored.findings[0].ignored == "a test account"
    other = changed(stranger, table_of("chess"), "ann@x", add="SELECT")
    again = drift(other, NOTHING, NOW, {ignored.findings[0].mark: "a test account"})
    assert [each.securable for each in again.open] == [table_of("chess")]


def test_where_nobody_could_look_is_told() -> None:
    """A table that was not read is named, and nothing is said to be missing on it."""
    observed, managed = kept(catalog_snapshot(), chess())
    direct = {where: held for where, held in observed.direct.items() if where != table_of("chess")}
    assert found(replace(observed, direct=direct), managed) == Drift((), (table_of("chess"),))


def test_an_act_that_is_not_possible_is_refused() -> None:
    """What only the catalog's owners can change is not planned."""
    broad = only(changed(catalog_snapshot(), SCHEMA, "ann@x", add="SELECT"), NOTHING)
    with pytest.raises(Refused, match=r"cannot revert this finding\. Possible: ignore"):
        intent(broad, "revert", "r")


def test_marks_are_one_for_each_finding() -> None:
    """Over random catalogs no two findings have one mark, so that to ignore one does not hide another."""
    for seed in range(200):
        marks = [each.mark for each in found(random_catalog(Random(seed)), NOTHING).findings]
        assert len(marks) == len(set(marks)), seed
