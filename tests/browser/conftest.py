"""The browser of these tests, and the environment that several of them look at."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.oncall_world import OnCall, on_call
from tests.browser.served import CHROMIUM, served


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnCall]:
    """An environment with trouble of all kinds, and with a controller and drivers in threads of this process.

    It ends with its module: other tests count leases, threads and hits of fail-points.
    """
    with on_call(tmp_path_factory.mktemp("oncall")) as made:
        yield made


@pytest.fixture(scope="module")
def oncall_address(world: OnCall) -> Iterator[str]:
    with served(world.folder) as started:
        yield started
