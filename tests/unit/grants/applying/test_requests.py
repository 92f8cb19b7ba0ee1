"""Requests for access: nobody decides about their own, and of two who decide the second finds out."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import Engine, insert

from grants.applying import requests
from grants.observing import snapshot
from pipeline.base.errors import Refused
from pipeline.store import audit
from pipeline.store.audit import changes_of, kept, requested
from pipeline.store.database.tables import catalog_snapshots

INTENTS = [{"principal": "ann@example.com", "key": "chess_aaaaaaaaaaaa", "read": True}]


def test_nobody_decides_about_a_request_of_their_own(engine: Engine) -> None:
    """Four eyes: who asks may withdraw, and neither approve nor reject; another one may not withdraw."""
    submitted = requests.submit(engine, "ann", INTENTS, "numbers")
    for state in ("approved", "rejected"):
        with pytest.raises(Refused, match="own"):
            requests.decide(engine, submitted, state, "ann", "why not")
    with pytest.raises(Refused, match="withdraw"):
        requests.decide(engine, submitted, "withdrawn", "bob", "")
    assert requests.request(engine, submitted.request_id).state == "asked"
    assert requests.decide(engine, submitted, "withdrawn", "ann", "").state == "withdrawn"


def test_an_address_in_another_case_is_the_same_person(engine: Engine) -> None:
    """As for roles, e-mail addresses are compared without case: nobody becomes another by writing theirs anew."""
    submitted = requests.submit(engine, "Ann@example.com", INTENTS, "numbers")
    with pytest.raises(Refused, match="on your own request"):
        requests.decide(engine, submitted, "approved", "ann@example.com", "")
    assert requests.decide(engine, submitted, "withdrawn", "ann@example.com", "").state == "withdrawn"


def test_of_two_who_decide_the_second_finds_out(engine: Engine) -> None:
    """A decision is a compare-and-set: the second admin sees a conflict, and what the first decided stands."""
    submitted = requests.submit(engine, "ann", INTENTS, "numbers")
    requests.decide(engine, submitted, "rejected", "bob", "not before the audit")
    with pytest.raises(requests.RequestConflict, match="rejected by 'bob'"):
        requests.decide(engine, submitted, "approved", "eve", "")
    found = requests.request(engine, submitted.request_id[:8])
    assert (found.state, found.decided_by, found.decision_reason) == ("rejected", "bob", "not before the audit")


def test_what_is_asked_and_decided_is_in_the_audit_log(engine: Engine) -> None:
    """Each request and each decision is one begun and one ended entry, by who did it; a conflict leaves none."""
    submitted = requests.submit(engine, "ann", INTENTS, "numbers")
    requests.decide(engine, submitted, "approved", "bob", "", "f" * 32)
    with pytest.raises(requests.RequestConflict):
        requests.decide(engine, submitted, "rejected", "eve", "late")
    reported = [(each.actor, each.action, each.phase) for each in audit.entries(engine)]
    assert reported == [
        ("ann", "request access", "begun"),
        ("ann", "request access", "ended"),
        ("bob", "approved a request", "begun"),
        ("bob", "approved a request", "ended"),
    ]
    (about,) = {str(changes_of(each.detail)) for each in audit.entries(engine)}
    assert about == str(changes_of(kept(requested(INTENTS))))
    assert "grant" in about
    assert audit.verify(engine).intact


def test_those_that_wait_come_first(engine: Engine) -> None:
    """A request that waits is never hidden behind decided ones, and the oldest of them is on top."""
    made = [requests.submit(engine, name, INTENTS, "numbers") for name in ("a", "b", "c")]
    requests.decide(engine, made[0], "rejected", "eve", "no")
    assert [each.requester for each in requests.list_requests(engine)] == ["b", "c", "a"]


def test_a_request_says_why(engine: Engine) -> None:
    """A request or a rejection without a reason is refused with a sentence."""
    with pytest.raises(Refused, match="reason"):
        requests.submit(engine, "ann", INTENTS, " ")
    with pytest.raises(Refused, match="reason"):
        requests.decide(engine, requests.submit(engine, "ann", INTENTS, "numbers"), "rejected", "bob", "")


def test_nobody_buries_the_requests_of_others(engine: Engine) -> None:
    """One requester has at most fifty that wait; deciding one of them makes room."""
    made = [requests.submit(engine, "ann", [{**INTENTS[0], "until": number}], "numbers") for number in range(50)]
    with pytest.raises(Refused, match="50 of your requests"):
        requests.submit(engine, "ann", INTENTS, "numbers")
    assert requests.submit(engine, "ann", [{**INTENTS[0], "until": 7.0}], "again").repeated, "it waits already"
    requests.decide(engine, made[0], "withdrawn", "ann", "")
    requests.submit(engine, "ann", INTENTS, "numbers")


def test_the_same_is_asked_for_once(engine: Engine) -> None:
    """While a request waits the same one by the same person is that one, told so, and not in the audit log again."""
    other = {"principal": "bob@example.com", "key": "go_aaaaaaaaaaaa", "read": True}
    first = requests.submit(engine, "ann", [*INTENTS, other], "numbers")
    again = requests.submit(
        engine, "ann", [{**other, "reason": "x"}, {**INTENTS[0], "principal": "Ann@Example.com"}], "more"
    )
    assert (first.repeated, again) == (False, replace(first, repeated=True))
    assert f"Already requested as {first.request_id[:8]}" in requests.describe(again)
    assert len(list(audit.entries(engine))) == 2
    for intents in (INTENTS, [other], [*INTENTS, {**other, "until": 9.0}], [*INTENTS, {**other, "read": False}]):
        assert not requests.submit(engine, "ann", intents, "numbers").repeated
    assert not requests.submit(engine, "bob", [*INTENTS, other], "numbers").repeated
    requests.decide(engine, first, "rejected", "eve", "no")
    assert not requests.submit(engine, "ann", [*INTENTS, other], "numbers").repeated


def test_two_who_ask_for_the_same_at_once_are_one_request(engine: Engine) -> None:
    """Of calls that run side by side, as two clicks in two windows do, one writes and the others find it."""
    together = threading.Barrier(4)

    def submit(_: int) -> requests.Request:
        together.wait()
        return requests.submit(engine, "ann", INTENTS, "numbers")

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(submit, range(4)))
    assert len({each.request_id for each in made}) == len(requests.list_requests(engine)) == 1
    assert sorted(each.repeated for each in made) == [False, True, True, True]


@pytest.mark.parametrize("kept", ["{}", "[", "[]", '"x"'])
def test_a_kept_snapshot_of_the_catalog_that_is_spoilt_is_as_none(engine: Engine, kept: str) -> None:
    """Unknown is what it then is, with the reason: no page and no command ends over it."""
    with engine.begin() as connection:
        connection.execute(insert(catalog_snapshots).values(snapshot_id=1, snapshot=kept, tried_at=1.0))
    taken = snapshot.read(engine)
    assert (taken.observed, "is invalid" in (taken.problem or "")) == (None, True)
