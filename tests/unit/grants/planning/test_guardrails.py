"""What the executor refuses, whatever plan it is handed."""

from dataclasses import replace

import pytest

from grants.catalog import Change
from grants.model import Principal, Securable
from grants.observing.resolver import Resolver
from grants.planning.change_set import ChangeSet
from grants.planning.entitlements import NOTHING, AccessIntent, Entitlement, ManagedAccess, ManagedGrant
from grants.planning.guardrails import Case, Requester, is_name, refusals, require_allowed
from grants.planning.plan import AccessPlan, plan
from pipeline.base.errors import Refused
from tests.unit.grants.grants_world import CATALOG, SCHEMA, catalog_snapshot, table_of

WORLD = catalog_snapshot(
    groups={"ann@x": {"team"}, "team": {"readers"}, "cid@x": {"readers"}}, people=("ann@x", "bob@x", "cid@x", "dora@x")
)


def person(name: str, *, is_admin: bool = True, is_known: bool = True) -> Requester:
    return Requester(name, frozenset(Resolver(WORLD).closure(name)), is_admin, is_known)


def case(planned: AccessPlan, actor: str = "ann@x", approver: Requester | None = None) -> Case:
    return Case(
        planned, person(actor), approver, SCHEMA, frozenset({"chess", "go"}), "robot", WORLD.directory, frozenset()
    )


def change(securable: Securable, who: str = "bob@x", *, add: str = "", remove: str = "") -> AccessPlan:
    changes = (Change(securable, who, (add,) if add else (), (remove,) if remove else ()),)
    return AccessPlan(change_set=ChangeSet(changes))


def granted(who: str, key: str = "chess") -> AccessPlan:
    return plan(WORLD, [AccessIntent(who, key, read=True, reason="r")], NOTHING, 0.0)


def test_what_a_planner_plans_for_somebody_else_passes() -> None:
    """An admin gives another user a game, and takes it again."""
    first = granted("bob@x")
    require_allowed(case(first))
    ours = ManagedAccess(first.after.entitlements, first.after.given)
    taken = AccessPlan(
        change_set=ChangeSet(tuple(Change(each.securable, "bob@x", (), each.add) for each in first.changes))
    )
    require_allowed(replace(case(taken), given=ours.given))


@pytest.mark.parametrize(
    ("planned", "sentence"),
    [
        (change(table_of("chess"), add="MANAGE"), "turnout does not grant or revoke MANAGE"),
        (change(table_of("chess"), add="ALL_PRIVILEGES"), "turnout does not grant or revoke ALL_PRIVILEGES"),
        (change(table_of("chess"), remove="MODIFY"), "turnout does not grant or revoke MODIFY"),
        (change(SCHEMA, add="SELECT"), "turnout does not grant or revoke SELECT on a schema: grant single games"),
        (change(CATALOG, add="USE_SCHEMA"), "turnout does not grant or revoke USE_SCHEMA on a catalog"),
        (change(table_of("salaries"), add="SELECT"), r"main\.games\.salaries is no table of a game.*in main\.games"),
        (change(Securable(("main", "other", "chess")), add="SELECT"), r"main\.other\.chess is no table of a game"),
        (change(Securable(("main", "other")), add="USE_SCHEMA"), r"main\.other is no table of a game"),
        (change(Securable(("other",)), add="USE_CATALOG"), "other is no table of a game"),
        (change(table_of("chess"), "eve@x", add="SELECT"), "directory does not know 'eve@x'"),
        (change(table_of("chess"), "robot", add="SELECT"), "robot executes the changes"),
        (change(table_of("chess"), "ROBOT", remove="SELECT"), "turnout never changes its access"),
        (change(table_of("chess"), "Account Users", add="SELECT"), "use a policy with allow_everyone"),
        (change(table_of("chess"), remove="SELECT"), "is not from turnout: revert it"),
        (AccessPlan(change_set=ChangeSet((Change(table_of("chess"), "bob@x", ("SELECT",), ("SELECT",)),))),
         "SELECT would be granted and revoked in one"),
        (AccessPlan(intents=(AccessIntent("bob@x", "chess", read=True, reason="  "),)), "needs one"),
        (AccessPlan(change_set=ChangeSet(made=(Entitlement("bob@x", "dota", None, ""),))), "dota is no registered"),
    ],
)  # fmt: skip
@pytest.mark.proves("G120", "H13")
def test_a_plan_that_no_planner_made_is_refused(planned: AccessPlan, sentence: str) -> None:
    """H13: each rule holds by itself, for a plan that was forged as for one that was made."""
    with pytest.raises(Refused, match=sentence):
        require_allowed(case(planned))


@pytest.mark.parametrize("who", ["ann@x", "ANN@X", "team", "readers"])
@pytest.mark.proves("G119")
def test_nobody_gives_themselves_or_their_groups_anything_alone(who: str) -> None:
    """It takes another admin, also for a group that one is in by another, and for no more than more time."""
    for planned in (
        granted(who),
        AccessPlan(change_set=ChangeSet(made=(Entitlement(who, "chess", 9.0, ""),))),
        change(SCHEMA, who, add="USE_SCHEMA"),
    ):
        with pytest.raises(Refused, match=r"ann@x may not grant to themselves or their own groups"):
            require_allowed(case(planned))
        require_allowed(case(planned, approver=person("dora@x")))


def test_who_is_no_user_of_the_catalog_grants_nothing() -> None:
    """Where it cannot be seen whether a grant is for its own author they neither grant nor approve; they may revoke."""
    stranger = person("root", is_known=False)
    for planned in (
        granted("bob@x"),
        AccessPlan(change_set=ChangeSet(made=(Entitlement("bob@x", "chess", 9.0, ""),))),
    ):
        for judged in (replace(case(planned), actor=stranger), case(planned, approver=stranger)):
            with pytest.raises(
                Refused, match=r"^The catalog has no user 'root'.* set access\.identities in turnout\.toml"
            ):
                require_allowed(judged)
        require_allowed(replace(case(planned, approver=person("dora@x")), actor=stranger))
    taken = change(table_of("chess"), remove="SELECT")
    require_allowed(replace(case(taken), actor=stranger, given={ManagedGrant(table_of("chess"), "bob@x", "SELECT")}))


@pytest.mark.parametrize(
    ("approver", "who", "sentence"),
    [
        (person("ann@x"), "ann@x", "ann@x may not approve their own request"),
        (person("ANN@X"), "bob@x", "ANN@X may not approve their own request"),
        (person("dora@x", is_admin=False), "ann@x", "not an access admin"),
        (person("bob@x"), "bob@x", "bob@x may not approve access for themselves or their own groups"),
        (person("cid@x"), "readers", "cid@x may not approve access for themselves or their own groups"),
    ],
)
def test_who_approves_is_another_admin_who_gets_nothing(approver: Requester, who: str, sentence: str) -> None:
    """Approver, requester and beneficiary are three."""
    with pytest.raises(Refused, match=sentence):
        require_allowed(case(granted(who), approver=approver))


@pytest.mark.proves("G264")
def test_a_group_whose_members_are_not_shown_may_hold_who_grants() -> None:
    """Where nobody can see whether a grantor or an approver is in a group, granting to it is refused."""
    unsure = replace(person("bob@x"), maybe=frozenset({"readers"}))
    told = "does not show who is in readers, so it is unknown whether bob@x gains"
    with pytest.raises(Refused, match=told):
        require_allowed(replace(case(granted("readers")), actor=unsure))
    with pytest.raises(Refused, match=told):
        require_allowed(replace(case(granted("readers"), actor="dora@x"), approver=unsure))
    require_allowed(replace(case(granted("cid@x")), actor=unsure))


def test_who_is_no_admin_can_only_ask() -> None:
    """A request of somebody without the role passes only with an admin's approval."""
    submitted = replace(case(granted("bob@x")), actor=person("ann@x", is_admin=False))
    with pytest.raises(Refused, match="ann@x is not an access admin: request access"):
        require_allowed(submitted)
    require_allowed(replace(submitted, approver=person("dora@x")))


def test_everybody_can_be_granted_where_a_policy_says_so() -> None:
    """With the policy it passes, though who asks and who approves are everybody too; a second admin is needed."""
    planned = change(table_of("chess"), "account users", add="SELECT")
    allowed = replace(case(planned, approver=person("dora@x")), everyone_allowed=True)
    require_allowed(allowed)
    assert len(refusals(replace(allowed, approver=None))) == 1


def test_from_somebody_who_is_gone_or_not_active_things_are_only_taken() -> None:
    """A revocation passes, a grant does not."""
    principals = {**WORLD.directory.principals, "bob@x": Principal("bob@x", "user", active=False)}
    directory = replace(WORLD.directory, principals=principals)
    with pytest.raises(Refused, match="bob@x is not active"):
        require_allowed(replace(case(granted("bob@x")), directory=directory))
    for who in ("bob@x", "eve@x"):
        taken = replace(case(change(table_of("chess"), who, remove="SELECT")), directory=directory)
        require_allowed(replace(taken, given={ManagedGrant(table_of("chess"), who, "SELECT")}))


def test_a_strangers_grant_is_taken_only_by_an_intent_that_says_so() -> None:
    """To revert one cell does not open another, nor what is above the tables."""
    intents = (AccessIntent("bob@x", "chess", read=False, reason="r", revert=True),)
    reverted = replace(change(table_of("chess"), remove="SELECT"), intents=intents)
    require_allowed(case(reverted))
    for planned in (change(table_of("go"), remove="SELECT"), change(SCHEMA, remove="USE_SCHEMA")):
        assert len(refusals(case(replace(planned, intents=intents)))) == 1


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ann",
        "ann ",
        "a\nb",
        "a\x00b",
        "a\tb",
        "a\u202eb",
        "a\u200bb",
        "a\u2028b",
        "a\u00a0b",
        "x" * 256,
        "a\ud800",
    ],
)
def test_a_text_that_hides_something_is_no_name(name: str) -> None:
    """Control and format characters, odd blanks, blanks at the ends and overlong texts are refused, known or not."""
    assert not is_name(name)
    assert any(
        "cannot be a principal's name" in each for each in refusals(case(change(SCHEMA, name, add="USE_SCHEMA")))
    )


@pytest.mark.parametrize(
    "name", ["ann@x.org", "Données – lecture `1`", "8f14e45f-ceea-467f-a8b2-0a1b2c3d4e5f", "x" * 255]
)
def test_names_that_people_see_are_names(name: str) -> None:
    """E-mails, display names in any script and ids pass."""
    assert is_name(name)
