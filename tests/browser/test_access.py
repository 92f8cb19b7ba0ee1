"""Access in a real browser, over a catalog that is really served and a controller that really changes it."""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import update

from grants.applying import expiries, ledger, proposals, requests
from grants.planning.entitlements import AccessIntent
from pipeline.base.actor import current_user
from pipeline.base.names import game_key
from pipeline.settings.tree import Paths
from pipeline.store import audit
from pipeline.store.database.tables import entitlements
from pipeline.store.operations import Operation, list_operations, submit
from tests.browser.access_world import Catalogued, catalogued
from tests.browser.drivers import steered
from tests.browser.lists import SOON, settled
from tests.browser.seed import HOSTILE
from tests.browser.served import CHROMIUM, opened, served

ANN, BOB, CLEO, DAN = (f"{name}@example.com" for name in ("ann", "bob", "cleo", "dan"))
ODD = "<img src=x onerror=\"document.title='owned'\">"
LINKS = "a@b.io:@c.io http://d.io www.e.io"
TURNED = "**\u202emoc.live**"
ROOT = "root@example.com"  # whom the page acts as
MANY = [f"reader{number:02d}@example.com" for number in range(50)]
ROUND = 2.0  # seconds between two looks of the controller
GAMES = ("Chess", "Go", "Ludo", "Risk", "Shogi", "Tarot", *HOSTILE)

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalogued]:
    """Return an environment with a catalog, a controller that looks at it all the time, and many people."""
    folder = tmp_path_factory.mktemp("access")
    names = [ANN, BOB, CLEO, DAN, ODD, ROOT, *MANY]
    settings = f'[access.identities]\n{current_user()} = "{ROOT}"\n'
    with (
        catalogued(folder, GAMES, {name: [] for name in names}, settings, refresh_seconds=ROUND) as made,
        steered(folder, ("a",), made.settings),
    ):
        yield made


@pytest.fixture(scope="module")
def address(world: Catalogued) -> Iterator[str]:
    with served(world.folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


def open_change(page: Page, does: str, games: list[str], who: list[str]) -> None:
    """Open the page with a change filled in, as a shared link does."""
    chosen = [("view", "change"), ("do", does), ("of_games", [game_key(name) for name in games]), ("to", who)]
    page.goto(f"/access?{urlencode(chosen, doseq=True)}")
    expect(page.get_by_label("Reason", exact=True)).to_be_visible(timeout=SOON)
    settled(page)


def preview(page: Page, reason: str = "numbers") -> None:
    page.get_by_label("Reason", exact=True).fill(reason)
    page.get_by_role("button", name=re.compile("^Preview the (grant|revoke)$")).click()


def why(page: Page, name: str, who: str) -> None:
    """Open the page at one cell."""
    page.goto(f"/access?{urlencode({'why_game': game_key(name), 'why_who': who})}")


def submitted(world: Catalogued, who: str) -> list[Operation]:
    return [
        each
        for each in list_operations(world.store)
        if f"reader:{who}" in each.targets or (expiries.is_automatic(each) and expiries.principal_of(each) == who)
    ]


def ended(world: Catalogued, who: str, count: int = 1) -> list[Operation]:
    """Wait until `count` operations about somebody are over."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = [each for each in submitted(world, who) if not each.is_open]
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not over: {submitted(world, who)}")


def test_a_grant_is_seen_when_it_was_observed_and_so_is_its_end(page: Page, world: Catalogued) -> None:
    """A cell says no until the catalog was read again after the grant, then reads; revoked, it says no again."""
    why(page, "Chess", ANN)
    expect(page.get_by_text(f"· no: {ANN} does not read")).to_be_visible(timeout=SOON)
    open_change(page, "give", ["Chess"], [ANN])
    preview(page)
    expect(page.get_by_text("1 cell gains read access")).to_be_visible(timeout=SOON)
    expect(page.get_by_text(f"GRANT SELECT ON TABLE turnout.games.{game_key('Chess')} TO {ANN}")).to_be_visible()
    assert not world.has_select(ANN, "Chess")
    page.get_by_role("button", name=re.compile(r"^Grant \d")).click()
    expect(page.get_by_text("✓ succeeded: 1 gained read access")).to_be_visible(timeout=SOON)
    expect(page.get_by_text("3 catalog changes: 3 seen in the catalog.")).to_be_visible(timeout=SOON)
    (done,) = ended(world, ANN)
    assert {each.state for each in ledger.items(world.store, done.operation_id)} == {"observed"}
    page.get_by_role("link", name="Submitted: operation").click()
    expect(page.get_by_text("3 catalog changes: 3 seen in the catalog.")).to_be_visible(timeout=SOON)
    why(page, "Chess", ANN)
    expect(page.get_by_text(f"✓ reads: {ANN} reads")).to_be_visible(timeout=SOON)
    open_change(page, "take", ["Chess"], [ANN])
    preview(page, "left the team")
    page.get_by_role("button", name=re.compile(r"^Revoke \d")).click()
    expect(page.get_by_text("✓ succeeded: 0 gained read access, 1 lost it.")).to_be_visible(timeout=SOON)
    assert not world.has_select(ANN, "Chess")
    why(page, "Chess", ANN)
    expect(page.get_by_text(f"· no: {ANN} does not read")).to_be_visible(timeout=SOON)


@pytest.mark.long
def test_what_is_given_for_a_while_ends_by_itself(page: Page, world: Catalogued) -> None:
    """When its time has come the controller takes it, and the cell that read does not any more."""
    intent = AccessIntent(BOB, game_key("Go"), True, time.time() + 3600, "for an hour", "DATA-7")
    prepared = proposals.prepare(world.store, world.catalog, world.settings.access, Paths(world.folder), [intent])
    submit(world.store, prepared.to_intent("eve", "for a while"))
    ended(world, BOB)
    why(page, "Go", BOB)
    expect(page.get_by_text(f"✓ reads: {BOB} reads")).to_be_visible(timeout=SOON)
    expect(page.get_by_text("1 ending within 14 days")).to_be_visible(timeout=SOON)
    with world.store.begin() as connection:  # its time comes
        mine = entitlements.c.principal == BOB
        connection.execute(update(entitlements).where(mine).values(expires_at=time.time() - 1))
    expect(page.get_by_text(f"· no: {BOB} does not read")).to_be_visible(timeout=SOON)
    assert not world.has_select(BOB, "Go")
    assert {each.actor for each in ended(world, BOB, 2)} == {"eve", "(controller)"}


@pytest.mark.long
def test_a_stale_preview_is_refused(page: Page, world: Catalogued) -> None:
    """The controller finds another person's change after the preview, does nothing, and says so."""
    open_change(page, "give", ["Ludo"], [CLEO])
    preview(page)
    expect(page.get_by_text("1 cell gains read access")).to_be_visible(timeout=SOON)
    world.use(CLEO)
    page.get_by_role("button", name=re.compile(r"^Grant \d")).click()
    said = "Nothing was done: it has changed since you looked. Review it and try again."
    expect(page.get_by_text(said, exact=True)).to_be_visible(timeout=SOON)
    assert not world.has_select(CLEO, "Ludo")


@pytest.mark.long
def test_nobody_gives_to_themselves(page: Page, world: Catalogued) -> None:
    """The preview of a grant to oneself is a refusal with its reason, and there is nothing to confirm."""
    open_change(page, "give", ["Risk"], [ROOT])
    preview(page)
    expect(page.get_by_text("may not grant to themselves or their own groups")).to_be_visible(timeout=SOON)
    expect(page.get_by_role("button", name=re.compile(r"^Grant \d"))).to_have_count(0)
    assert submitted(world, ROOT) == []
    _is_inert(page)


@pytest.mark.long
def test_of_fifty_the_three_that_fail_are_shown(page: Page, world: Catalogued) -> None:
    """Of a bulk of 50, three whom the catalog refuses fail on their own, on top, with why; the others are done."""
    open_change(page, "give", ["Shogi"], MANY)
    preview(page)
    expect(page.get_by_text("50 cells gain read access")).to_be_visible(timeout=SOON)
    page.get_by_label("Type GRANT 50 to confirm").fill("GRANT 50")
    world.server.trouble(slow_every=1, slow_seconds=0.05)  # so that there is a while in which some are applied
    page.get_by_role("button", name=re.compile(r"^Grant \d")).click()
    _until_some_are_applied(world)
    for who in MANY[-3:]:
        world.delete(who)
    world.server.trouble()
    expect(page.get_by_text("✗ failed: 141 of 150 changes were applied. 9 not")).to_be_visible(timeout=60_000)
    expect(page.get_by_text("150 catalog changes: 9 failed, 141 seen in the catalog.")).to_be_visible()
    assert [world.has_select(who, "Shogi") for who in MANY] == [True] * 47 + [False] * 3


def _until_some_are_applied(world: Catalogued) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = submitted(world, MANY[0])
        if found and any(each.state == "applied" for each in ledger.items(world.store, found[0].operation_id)):
            return
        time.sleep(0.02)
    raise AssertionError("nothing is applied")


@pytest.mark.long
@pytest.mark.proves("H7")
def test_a_double_click_is_one_change(page: Page, world: Catalogued) -> None:
    """H7: two fast clicks are one operation, one begun and one ended entry of the audit log."""
    open_change(page, "give", ["Tarot"], [DAN])
    preview(page)
    page.get_by_role("button", name=re.compile(r"^Grant \d")).dblclick(timeout=SOON)
    expect(page.get_by_text("✓ succeeded: 1 gained read access")).to_be_visible(timeout=SOON)
    (done,) = ended(world, DAN)
    reported = [each.phase for each in audit.entries(world.store) if each.operation_id == done.operation_id]
    assert reported == ["begun", "ended"]


@pytest.mark.long
def test_a_click_on_a_cell_tells_why_and_is_in_the_link(page: Page, world: Catalogued) -> None:
    """A cell fills in why beside it, and stays chosen; a view that is chosen stays, before it and after it."""
    del world
    page.goto(f"/access?{urlencode({'view': 'ending', 'game_text': 'Ludo', 'who_text': BOB})}")
    table = page.get_by_test_id("stDataFrame").first
    expect(table).to_be_visible(timeout=SOON)
    settled(page)
    table.click(position={"x": 310, "y": 53})  # the first cell: below the heading, right of the game's name
    expect(page.get_by_text(f"· no: {BOB} does not read {game_key('Ludo')}")).to_be_visible(timeout=SOON)
    expect(page).to_have_url(re.compile(rf"why_game={game_key('Ludo')}"))
    found = parse_qs(urlsplit(page.url).query)
    assert (found["why_who"], found["game_text"], found["view"]) == ([BOB], ["Ludo"], ["ending"])
    seen = page.get_by_text("data as of").inner_text()
    page.get_by_text("Drift", exact=True).click()
    expect(page).to_have_url(re.compile("view=drift"))
    expect(page.get_by_text(seen)).to_have_count(0, timeout=SOON)  # it was drawn anew
    settled(page)
    assert "view=drift" in page.url


@pytest.mark.proves("H4")
def test_hostile_names_act_nowhere(page: Page, world: Catalogued) -> None:
    """H4: names with markup, scripts and turned text are letters in every view, and addresses in them are no links."""
    intents = [asdict(AccessIntent(TURNED, game_key(name), True, None, name)) for name in HOSTILE]
    requests.submit(world.store, HOSTILE[0], intents, HOSTILE[1])
    for view in ("why", "requests", "drift", "ending"):
        cell = {"view": view, "why_game": game_key(HOSTILE[0]), "why_who": ODD.casefold(), "game_text": HOSTILE[0]}
        cell["kind"] = LINKS
        page.goto(f"/access?{urlencode(cell)}")
        expect(page.get_by_text("file system is the real boundary")).to_be_visible(timeout=SOON)
        settled(page)
        expect(page.get_by_text(f"kind “{LINKS}”")).to_be_visible()
        _is_inert(page)
    open_change(page, "give", list(HOSTILE), [ODD.casefold()])
    preview(page, HOSTILE[0])
    expect(page.get_by_text("Statements (5 catalog changes)")).to_be_visible(timeout=SOON)
    _is_inert(page)


def _is_inert(page: Page) -> None:
    assert page.title() != "owned"
    assert page.locator("img[src=x], main script, a[href^=javascript], a[href^=mailto], a[href*='.io']").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()
