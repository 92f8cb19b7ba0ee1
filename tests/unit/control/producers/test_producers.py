"""Producers of the edge: planned from a file, applied whole, revoked for ever, each with its audit entry."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from pipeline.base.errors import Refused
from pipeline.control.producers import proposals
from pipeline.control.producers.producers_file import parse, render
from pipeline.settings.tree import Settings
from pipeline.store import audit
from pipeline.store.edge_producers import EdgeProducer, read_producers

HASH = "ab" * 32
OTHER = "cd" * 32
FILE = f"""\
version: 1
producers:
- name: chess
  token_sha256: {HASH}
  games: [Chess]
  prefixes: ["Chess "]
  expires: 2027-01-31
  events_per_second: 500
- name: ops
  token_sha256: {OTHER}
  games: all
"""
CERTIFIED = """\
version: 1
producers:
- name: chess
  certificate: uri:spiffe://games.example/chess
  games: [Chess]
"""


def applied(engine: Engine, text: str = FILE) -> None:
    proposals.apply(Settings(), engine, proposals.plan(engine, text), "ann", "a test")


def test_a_file_says_who_may_send_what() -> None:
    """A day is its beginning in UTC, and `all` is every name."""
    chess, ops = parse(FILE)
    assert chess == EdgeProducer(
        "chess", HASH, ("Chess",), ("Chess ",), expires_at=1_801_353_600.0, events_per_second=500
    )
    assert [chess.may_send(name) for name in ("Chess", "Chess 2", "chess", "Go")] == [True, True, False, False]
    assert ops.may_send("anything")
    assert [chess.is_valid(at) for at in (1_801_353_599.0, 1_801_353_600.0)] == [True, False]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.builds(
            EdgeProducer,
            st.integers(0, 10**6).map("p{}".format),
            st.integers(0, 2**256 - 1).map("{:064x}".format),
            st.lists(st.text("abc é", min_size=1).filter(str.strip), unique=True, min_size=1).map(tuple),
            expires_at=st.none() | st.integers(0, 4_000_000_000).map(float),
            events_per_second=st.none() | st.integers(1, 1_000),
            certificate=st.sampled_from(["", "uri:spiffe://a/{}", "dns:p{}.example", "cn:Games: {} é"]),
        ).map(lambda each: replace(each, certificate=each.certificate.format(each.name))),
        unique_by=(lambda each: each.name, lambda each: each.token_sha256),
        max_size=5,
    )
)
def test_a_printed_file_reads_back(producers: list[EdgeProducer]) -> None:
    """`list` prints what `apply` takes."""
    assert list(parse(render(tuple(producers)))) == producers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("version: 2\nproducers: []", "version: 1"),
        ("version: 1", "producers is missing"),
        (f"version: 1\nproducers:\n- name: a\n  token_sha256: {HASH}", "games and prefixes are missing"),
        ("version: 1\nproducers:\n- name: a\n  token_sha256: abc\n  games: [x]", "is no token_sha256"),
        ("version: 1\nproducers:\n- name: a\n  games: [x]", "token_sha256 and certificate are missing"),
        (CERTIFIED.replace("uri:spiffe://games.example/chess", "chess"), "is no certificate; use uri:"),
        (CERTIFIED.replace("uri:spiffe://games.example/chess", "dns:Chess.example"), "is no certificate"),
        (CERTIFIED.replace("uri:spiffe://games.example/chess", "dns:*.example"), "is no certificate"),
        (CERTIFIED + CERTIFIED.partition("producers:\n")[2].replace("name: chess", "name: go"), "already in line 4"),
        (FILE.replace("ops", "chess"), "already in line 3"),
        (FILE.replace(OTHER, HASH), "already in line 4"),
        (FILE.replace("2027-01-31", "tomorrow"), "such as 2027-01-31T12:00:00Z"),
        (FILE.replace("500", "0"), "events_per_second"),
    ],
)
def test_a_wrong_file_changes_nothing(engine: Engine, text: str, words: str) -> None:
    """Every problem is reported with its line, and nothing is written."""
    with pytest.raises(Refused, match=words):
        applied(engine, text)
    assert read_producers(engine).number == 0


def test_applied_and_planned_again_nothing_changes(engine: Engine) -> None:
    """A plan shows what apply does; afterwards it is empty, and the audit log has the act."""
    plan = proposals.plan(engine, FILE)
    assert [line.partition(":")[0] for line in plan.lines] == ["+ chess", "+ ops"]
    applied(engine)
    assert not proposals.plan(engine, FILE).changes
    assert [(each.action, each.phase) for each in audit.entries(engine)] == [
        ("apply edge producers", "begun"), ("apply edge producers", "ended"),
    ]  # fmt: skip
    changed = proposals.plan(engine, FILE.replace("500", "900"))
    assert changed.lines == ("~ chess: events_per_second 500 → 900",)
    with pytest.raises(Refused, match="Plan again"):
        proposals.apply(Settings(), engine, replace(plan), "bob", "later")


def test_a_revoked_token_stays_revoked(engine: Engine) -> None:
    """Neither the old file nor one without the producer brings the token back."""
    applied(engine)
    proposals.revoke(Settings(), engine, "chess", "ann", "leaked")
    assert [(each.name, each.revoked) for each in read_producers(engine).producers] == [("ops", False), ("chess", True)]
    with pytest.raises(Refused, match="was revoked"):
        proposals.plan(engine, FILE)
    applied(engine, "version: 1\nproducers: []")
    assert [(each.name, each.revoked) for each in read_producers(engine).producers] == [("chess", True)]
    with pytest.raises(Refused, match="revoked already"):
        proposals.revoke(Settings(), engine, "chess", "ann", "again")
    with pytest.raises(Refused, match="no producer"):
        proposals.revoke(Settings(), engine, "nobody", "ann", "again")
    new = FILE.replace(HASH, "ef" * 32)
    applied(engine, new)
    with pytest.raises(Refused, match="was revoked"):
        proposals.plan(engine, FILE)


def test_a_producer_has_a_token_or_a_certificate_or_both(engine: Engine) -> None:
    """A certificate is planned, applied and revoked as a token is; its name stays refused in every later file."""
    plan = proposals.plan(engine, CERTIFIED)
    assert plan.lines == ("+ chess: certificate uri:spiffe://games.example/chess; games Chess",)
    both = CERTIFIED.replace("  games", f"  token_sha256: {HASH}\n  games")
    applied(engine, both)
    (chess,) = read_producers(engine).producers
    assert chess.credentials == (HASH, "uri:spiffe://games.example/chess")
    assert proposals.plan(engine, CERTIFIED).lines == (f"~ chess: token_sha256 {HASH[:8]}… → -",)
    proposals.revoke(Settings(), engine, "chess", "ann", "the key leaked")
    with pytest.raises(Refused, match="certificate of 'chess' was revoked"):
        proposals.plan(engine, CERTIFIED)
    applied(engine, CERTIFIED.replace("chess\n  games", "chess-2\n  games"))
    assert [(each.certificate, each.revoked) for each in read_producers(engine).producers] == [
        ("uri:spiffe://games.example/chess-2", False), ("uri:spiffe://games.example/chess", True),
    ]  # fmt: skip
