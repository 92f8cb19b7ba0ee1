"""`python -m bench.viewers`: people who look at the dashboard of many games: memory, CPU time, complaints, first paint.

`turnout dashboard` serves an environment whose drivers report as real ones do. One viewer and the first paints are
pages in a real browser, the other viewers sockets without one. CPU and memory are those of the dashboard's process
alone. See docs/performance.md.
"""

import argparse
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench import cpu, machine
from bench.command import carry_out
from bench.looking import Looker, looking
from bench.numbers import theil_sen
from bench.text import number, table
from bench.ticking import ticking
from tests.browser.served import CHROMIUM, HARMLESS, free_port, printed_url, sign_in, started

MOST_CORES: Final = 0.3
MOST_WARM, MOST_COLD = 1.0, 2.5  # seconds to the first paint
_FLAT: Final = 1.0  # MiB a minute: less is no growth beyond what a day would show
_SETTLING: Final = 0.25  # of the time, in which caches fill: not part of the slope
_LOOK_SECONDS: Final = 5.0
_PAINTED: Final = """
new MutationObserver((_, self) => {
  const sentence = document.querySelector('.t-sentence b');
  if (sentence && sentence.innerText) { window.paintedAfter = performance.now(); self.disconnect(); }
}).observe(document, {childList: true, subtree: true, characterData: true});
"""
"""The first paint is the sentence of the page: what is wrong. The skeleton before it says nothing."""


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Serve, let people look, and return all numbers."""
    complaints: list[str] = []
    port, log = free_port(), folder / "app.log"
    command = ["-m", "pipeline", "dashboard", "--env-dir", str(folder), "--port", str(port)]
    with ticking(folder, options.games, options.groups) as problems, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        with started(command, port, log) as app:
            url = printed_url(log)
            paints = {"cold": _first_paints(browser, url, complaints, 1)}
            paints["a new browser"] = [_first_paints(browser, url, complaints, 1)[0] for _ in range(3)]
            paints["warm"] = _first_paints(browser, url, complaints, 6)[1:]
            lookers = [Looker(each.removeprefix("fleet")) for each in _shares(options)]
            with _viewer(browser, url, options.pages[0], complaints) as page, looking(url, lookers):
                looks, wall, used = _watch(app.pid, page, options.minutes * 60)
                paints["warm, with the viewers"] = _first_paints(browser, url, complaints, 6)[1:]
        browser.close()
    runs = [run for each in lookers for run in each.runs]
    return {
        "machine": machine.describe(),
        "load": machine.load_average(),
        "options": {name: getattr(options, name) for name in ("games", "groups", "viewers", "minutes", "pages")},
        "cores": used / wall,
        "rss_mib": looks,
        "mib_per_minute": _slope(looks),
        "first_paint_seconds": paints,
        "runs": len(runs),
        "kb_a_run": sum(run[1] for run in runs) / 1000 / max(1, len(runs)),
        "complaints": complaints,
        "problems": [*problems, *(each.problem for each in lookers if each.problem is not None)],
    }


def held(result: dict[str, Any]) -> dict[str, bool]:
    """Return whether each limit was kept; unknown growth is no kept limit."""
    paints, slope = result["first_paint_seconds"], result["mib_per_minute"]
    return {
        f"cores of the dashboard ≤ {MOST_CORES}": result["cores"] <= MOST_CORES,
        f"memory grows ≤ {_FLAT} MiB a minute": slope is not None and slope <= _FLAT,
        "no complaint in a console": not result["complaints"] and not result["problems"],
        f"first paint cold ≤ {MOST_COLD} s": max(paints["cold"]) <= MOST_COLD,
        f"first paint of a new browser ≤ {MOST_COLD} s": max(paints["a new browser"]) <= MOST_COLD,
        f"first paint warm ≤ {MOST_WARM} s": max(paints["warm"]) <= MOST_WARM,
    }


def report(result: dict[str, Any]) -> str:
    """Return the numbers as text."""
    looks, options = result["rss_mib"], result["options"]
    every = max(1, len(looks) // 15)
    slope = result["mib_per_minute"]
    lines = [
        f"{options['viewers']} viewers of {options['games']} games for {options['minutes']:g} min",
        f"load of the machine at the end: {result['load']:.1f}",
        f"cores of the dashboard: {result['cores']:.3f}",
        f"{result['runs']} refreshes, {result['kb_a_run']:.1f} kB each on average",
        f"its memory grows by {number(slope)} MiB a minute" if slope is not None else "its growth is not known",
        table(("minute", "MiB"), [(f"{at / 60:.1f}", f"{mib:.0f}") for at, mib in looks[::every]]),
        table(
            ("first paint, seconds", "each"),
            [(name, " ".join(f"{each:.2f}" for each in took)) for name, took in result["first_paint_seconds"].items()],
        ),
        *[f"complaint: {each}" for each in [*result["complaints"], *result["problems"]][:20]],
        *[f"{'HELD' if kept else 'NOT held'}: {what}" for what, kept in held(result).items()],
    ]
    return "\n".join(lines)


def _shares(options: argparse.Namespace) -> list[str]:
    """Return the page of each viewer without a browser."""
    return [options.pages[at % len(options.pages)] for at in range(1, options.viewers)]


@contextmanager
def _viewer(browser: Browser, url: str, page: str, complaints: list[str]) -> Iterator[Page]:
    shown = _page(browser, url, complaints)
    shown.goto(f"/{page.removeprefix('fleet')}")
    expect(shown.locator(".t-sentence b").first).to_be_visible(timeout=120_000)
    yield shown
    shown.context.close()


def _page(browser: Browser, url: str, complaints: list[str]) -> Page:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, base_url=re.sub(r"/\?.*", "", url))
    sign_in(context, url)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type == "error" and HARMLESS not in said.text else None,
    )
    return page


def _first_paints(browser: Browser, url: str, complaints: list[str], visits: int) -> list[float]:
    """Return the seconds to the first paint of each visit of one browser, which keeps what it got at the first."""
    page = _page(browser, url, complaints)
    page.add_init_script(_PAINTED)
    took = []
    for _ in range(visits):
        page.goto("/")
        page.wait_for_function("() => window.paintedAfter !== undefined", timeout=120_000)
        took.append(float(page.evaluate("window.paintedAfter")) / 1000)
    page.context.close()
    return took


def _watch(pid: int, page: Page, seconds: float) -> tuple[list[tuple[float, float]], float, float]:
    """Look at the dashboard's process while people look at its pages; return memory, wall and CPU seconds."""
    begun, first = time.monotonic(), cpu.read_trees({"app": pid})["app"].cpu_seconds
    looks = []
    while (now := time.monotonic() - begun) < seconds:
        looks.append((round(now, 1), cpu.read_trees({"app": pid})["app"].rss_bytes / 2**20))
        page.wait_for_timeout(1000 * min(_LOOK_SECONDS, seconds - now))  # the browser's events go on
    use = cpu.read_trees({"app": pid})["app"]
    return looks, time.monotonic() - begun, use.cpu_seconds - first


def _slope(looks: list[tuple[float, float]]) -> float | None:
    settled = [(at / 60, mib) for at, mib in looks if at >= _SETTLING * looks[-1][0]]
    if len(settled) < 3:
        return None
    return theil_sen([at for at, _ in settled], [mib for _, mib in settled]).per_second  # here: a minute


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.viewers")
    parser.add_argument("--games", type=int, default=1_000)
    parser.add_argument("--groups", type=int, default=10)
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--pages", nargs="+", default=["fleet"], help="what the viewers look at, in turn")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def main() -> None:
    """Measure and print; the exit code says whether all limits were kept."""
    options = _options()
    result = carry_out(options, partial(measure, options=options), report)
    sys.exit(0 if all(held(dict(result)).values()) else 1)


if __name__ == "__main__":
    main()
