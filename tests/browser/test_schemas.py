"""The Schemas page in a real browser: a file is uploaded through the gate, previewed and registered."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from sqlalchemy import Engine

from pipeline.base.names import game_key
from pipeline.data.contracts.catalogue.versions import read_versions
from pipeline.data.contracts.registry import LocalRegistry
from pipeline.settings.tree import load
from pipeline.store.database.engine import open_store, writing
from pipeline.store.schema_needs import OpenNeed, RegistryHealth, write_needs, write_state
from pipeline.store.writers import lock
from tests.browser.lists import settled
from tests.browser.seed import HOSTILE
from tests.browser.served import CHROMIUM, opened, served, sign_in
from tests.checkout import ROOT
from tests.unit.data.contracts.catalogue_world import avro, register
from tests.unit.data.contracts.definition_world import bundle, define

SCREENSHOTS = ROOT / "artefacts" / "screenshots"
SOON = 30_000
CHESS = game_key("Chess")

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not CHROMIUM.exists(), reason=f"no browser at {CHROMIUM}: install chromium"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with games of both formats, one of which refuses rows, and registries in trouble."""
    folder = tmp_path_factory.mktemp("schemas")
    engine = open_store(*load(folder))
    fill(engine)
    engine.dispose()
    return folder


def fill(engine: Engine) -> None:
    speeds = {"type": "enum", "name": "Speed", "symbols": ["BLITZ", "RAPID"]}
    register(engine, avro(player="string", rating="int", clock_ms="int", move="string"), by="ann")
    register(engine, avro(player="string", rating="long", clock_ms="int", move="string", speed=speeds), by="ci-games")
    register(engine, avro(player="string", rating="string", move="string"), "incompatible=quarantine", by="bob")
    for number, name in enumerate(("Star Kart", "Mystic League", "Brave Quest", *HOSTILE)):
        definition = bundle(define({"M": {"score": (1, "int32"), "lap": (2 + number, "string")}}))
        LocalRegistry(engine).register(name, "t.M", definition)
    now = time.time()
    with writing(engine) as connection:
        lock(connection)
        write_state(connection, RegistryHealth("main", "away", now - 240, "connection refused", now, now + 20))
        seen = "Registry glue gave another content for schema 7 than before"
        write_state(connection, RegistryHealth("glue", "mistrusted", now - 900, seen, now))
    write_needs(engine, [OpenNeed("main", b"\x00\x00\x00\x00\x07", game_key("Ludo"), "Ludo", now - 90, 1, 0)])


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    with served(folder) as started:
        yield started


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    with opened(browser, address) as empty:
        yield empty


def test_an_upload_is_registered_through_the_gate(page: Page, folder: Path) -> None:
    """Gate and browser let an operator's file in, the preview is the plan, and the click registers it."""
    page.goto(f"/schemas?game={CHESS}&from=1&to=2")
    expect(page.get_by_text("What changes from version 1 to version 2")).to_be_visible(timeout=SOON)
    page.get_by_text("Register the next version of this game").click()
    content = avro(player="string", rating="long", clock_ms="int", move="string", eval="double")
    page.locator('input[type="file"]').set_input_files(
        {"name": "move.avsc", "mimeType": "application/json", "buffer": content}
    )
    expect(page.get_by_text("move.avsc")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Preview the registration").click()
    expect(page.get_by_text("eval: is new")).to_be_visible(timeout=SOON)
    page.get_by_role("button", name="Register version 4").click()
    expect(page.get_by_text("is version 4 of the game")).to_be_visible(timeout=SOON)
    engine = open_store(*load(folder))
    assert len(read_versions(engine, CHESS)[CHESS].versions) == 4
    engine.dispose()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_screenshots(browser: Browser, address: str, scheme: str) -> None:
    """The page draws to the end in both themes; the screenshots are kept for people."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1440, "height": 1500}, base_url=address, color_scheme="dark" if scheme == "dark" else "light"
    )
    sign_in(context, address)
    page = context.new_page()
    page.goto(f"/schemas?game={CHESS}&to=3")
    expect(page.get_by_text("What changes from version 2 to version 3")).to_be_visible(timeout=SOON)
    expect(page.locator('[data-testid="stDataFrame"] table')).to_have_count(3, timeout=SOON)
    settled(page)
    page.screenshot(path=SCREENSHOTS / f"schemas-{scheme}.png")
    context.close()
