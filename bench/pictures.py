"""`python -m bench.pictures FOLDER`: pictures of each page of a real demo, healthy and in trouble, and an animation.

It starts a demo, breaks it as the page Break it does, and mends it by the pages. With `--docs` it also writes
the pictures of the README.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from pipeline.base.names import game_key
from pipeline.demo.breaking import channel
from pipeline.settings.tree import Paths
from tests.browser.served import CHROMIUM, ROOT, free_port, origin_of, printed_url, sign_in, started

CHESS: Final = game_key("Chess")
WHO: Final = "bob@example.com"
PAGES: Final[Mapping[str, str]] = {
    "fleet": "/",
    "game": f"/game?game={CHESS}",
    "groups": "/groups",
    "games": "/games",
    "schemas": f"/schemas?game={CHESS}",
    "repairs": "/repairs",
    "access": f"/access?why_game={CHESS}&why_who={WHO}",
    "operations": "/operations",
    "audit": "/audit",
    "break-it": "/break_it",
}
WIDTHS: Final = {1280: 960, 1920: 1200}
_FRAME: Final = (1280, 800)
_SMALL: Final = (960, 600)
_MOST_BYTES: Final = 1_500_000
_EVERY_SECONDS: Final = 2.0
_MOST_FRAMES: Final = 45
_FRAME_MS, _LAST_MS = 900, 3_000
_SOON: Final = 120_000


@contextmanager
def demo(folder: Path, minutes: float) -> Iterator[str]:
    """Run a demo in a folder, and yield the URL of its dashboard once it is healthy and has run for some minutes."""
    folder.mkdir(parents=True)
    (folder / "turnout.toml").write_text(f"[dashboard]\nport = {free_port()}\n", "utf-8")
    log = folder / "demo.log"
    command = [sys.executable, "-m", "pipeline", "demo", "--env-dir", str(folder)]
    with log.open("wb") as output:
        running = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output)
        try:
            yield _url(running, log, minutes)
        finally:
            running.terminate()
            running.wait(timeout=120)


@contextmanager
def beside(folder: Path) -> Iterator[str]:
    """Serve a dashboard of this checkout over the demo that runs in a folder, and yield its URL."""
    port = free_port()
    command = ["-m", "pipeline", "dashboard", "--env-dir", str(folder), "--port", str(port)]
    with started(command, port, folder / "pictures.log"):
        yield printed_url(folder / "pictures.log")


def _url(running: "subprocess.Popen[bytes]", log: Path, minutes: float) -> str:
    begun = time.monotonic()
    while running.poll() is None and time.monotonic() - begun < 300:
        found = re.search(r"dashboard +(http\S+)", log.read_text("utf-8", "replace"))
        if found is not None:
            time.sleep(60 * minutes)
            return found.group(1)
        time.sleep(1)
    raise AssertionError(f"the demo gives no address: {log.read_text('utf-8', 'replace')[-2000:]}")


@contextmanager
def opened(browser: Browser, url: str, width: int, height: int, theme: str) -> Iterator[Page]:
    """Open an empty page of a size, in a theme."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        base_url=origin_of(url),
        color_scheme="dark" if theme == "dark" else "light",
    )
    sign_in(context, url)
    yield context.new_page()
    context.close()


def look(page: Page, path: str) -> None:
    """Open a page, and wait until all of it is drawn."""
    page.goto(path)
    expect(page.locator(".t-sentence b").first).to_be_visible(timeout=_SOON)
    expect(page.locator('[data-testid="stSkeleton"]')).to_have_count(0, timeout=_SOON)
    page.wait_for_timeout(2_500)  # canvases and charts are drawn after their elements are there


def shoot(browser: Browser, url: str, options: argparse.Namespace, state: str, pages: Mapping[str, str]) -> None:
    """Take pictures of pages, in each theme and width."""
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for theme in options.themes:
        for width, height in [(each, WIDTHS[each]) for each in options.widths]:
            with opened(browser, url, width, height, theme) as page:
                for name, path in pages.items():
                    look(page, path)
                    tall = page.evaluate(
                        "document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight + 60"
                    )
                    page.set_viewport_size({"width": width, "height": max(height, min(int(tall), 2_400))})
                    page.wait_for_timeout(700)
                    page.screenshot(path=folder / f"{name}-{theme}-{width}-{state}.png")
                    page.set_viewport_size({"width": width, "height": height})


class Film:
    """Frames of one page, of which those that look like the last one are left out."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.frames: list[Image.Image] = []

    def take(self) -> None:
        """Take a frame."""
        with Image.open(BytesIO(self.page.screenshot())) as taken:
            frame = taken.convert("RGB").resize(_SMALL, Image.Resampling.LANCZOS)
        if not self.frames or frame.tobytes() != self.frames[-1].tobytes():
            self.frames.append(frame)

    def until(self, text: str, seconds: float) -> bool:
        """Take frames until a text stands on the page; say whether it came."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.take()
            try:
                expect(self.page.get_by_text(re.compile(text)).first).to_be_visible(timeout=1_000 * _EVERY_SECONDS)
            except AssertionError:
                continue
            self.take()
            return True
        return False

    def save(self, path: Path) -> int:
        """Write the frames as an animated WebP of at most the bytes allowed; return how many it has."""
        chosen = self.frames
        if len(chosen) > _MOST_FRAMES:
            chosen = [chosen[round(each * (len(chosen) - 1) / (_MOST_FRAMES - 1))] for each in range(_MOST_FRAMES)]
        times = [*[_FRAME_MS] * (len(chosen) - 1), _LAST_MS]
        for quality in (80, 65, 50, 35, 20):
            chosen[0].save(
                path, save_all=True, append_images=chosen[1:], duration=times, loop=0, quality=quality, method=4
            )
            if path.stat().st_size <= _MOST_BYTES:
                return len(chosen)
        raise AssertionError(f"{path} has {path.stat().st_size} bytes with the lowest quality")


def film(browser: Browser, url: str, paths: Paths, out: Path) -> None:
    """Film a driver that hangs, from the fault to the mend: seen on Fleet, restarted on Groups, level again."""
    with opened(browser, url, *_FRAME, "light") as page:
        look(page, "/?every=2s&range=15m")
        taken = Film(page)
        taken.until("streams healthy", 120)
        print(f"film: {channel.begin(paths, 'freeze', 'b').said}", flush=True)
        print(
            "film: seen", taken.until(r"[Gg]roup b .*(silent|hangs|does not|no heartbeat)|driver gone", 90), flush=True
        )
        page.wait_for_timeout(3_000)
        taken.take()
        look(page, "/groups?steer=b&every=2s")
        taken.take()
        page.get_by_role("button", name="Restart…", exact=True).first.click(timeout=_SOON)
        phrase = page.get_by_label(re.compile("Type RESTART"))
        expect(phrase).to_be_visible(timeout=_SOON)
        page.get_by_label("Reason", exact=True).fill("its driver hangs")
        phrase.fill(re.sub(r"^Type (.*) to confirm.*$", r"\1", phrase.get_attribute("aria-label") or ""))
        taken.take()
        page.get_by_role("button", name=re.compile(r"^Restart \d")).click()
        print("film: done", taken.until("succeeded: Restarted", 240), flush=True)
        look(page, "/?every=2s&range=15m")
        print("film: well", taken.until("streams healthy", 300), flush=True)
        page.wait_for_timeout(4_000)
        taken.take()
    print(f"film: {taken.save(out)} frames, {out.stat().st_size:,} bytes", flush=True)


def _break(paths: Paths) -> None:
    for fault, target in (("schema", str(CHESS)), ("poison", str(game_key("Block Party")))):
        try:
            print(f"broke: {channel.begin(paths, fault, target).said}", flush=True)
        except Exception as error:  # noqa: BLE001 - the pictures without this fault are pictures, too
            print(f"not broken: {fault} {target}: {error}", flush=True)


def _for_the_readme(folder: Path) -> None:
    """Copy the README's pictures into docs/images, with a palette: a quarter of the bytes."""
    for name, taken in (("fleet", "fleet-light-1280-trouble"), ("game", "game-dark-1280-trouble")):
        if not (folder / f"{taken}.png").exists():
            continue  # its theme or width was not wanted
        with Image.open(folder / f"{taken}.png") as picture:
            small = picture.convert("RGB").crop((0, 0, picture.width, min(picture.height, 1_100)))
            small.quantize(256, dither=Image.Dither.NONE).save(ROOT / "docs" / "images" / f"{name}.png", optimize=True)


def main() -> None:
    """Run the demo and take everything."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.pictures")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the demo runs before the first picture")
    parser.add_argument("--demo", type=Path, help="environment of a demo that runs already; without, one is started")
    parser.add_argument("--docs", action="store_true", help="write the README's pictures and its animation")
    parser.add_argument("--no-film", action="store_true")
    parser.add_argument("--themes", nargs="+", choices=("light", "dark"), default=["light", "dark"])
    parser.add_argument("--widths", nargs="+", type=int, choices=tuple(WIDTHS), default=list(WIDTHS))
    options = parser.parse_args()
    env = options.folder.resolve() / "env" if options.demo is None else options.demo.resolve()
    serving = demo(env, options.minutes) if options.demo is None else beside(env)
    with serving as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        paths = Paths(env)
        shoot(browser, url, options, "healthy", {name: PAGES[name] for name in ("fleet", "game")})
        if not options.no_film:
            try:
                film(browser, url, paths, options.folder / "fault.webp")
            except (PlaywrightTimeout, AssertionError) as error:
                print(f"no film: {error}", flush=True)
        _break(paths)
        time.sleep(90)
        shoot(browser, url, options, "trouble", PAGES)
        browser.close()
    if options.docs:
        _for_the_readme(options.folder)
        if (options.folder / "fault.webp").exists():
            (ROOT / "docs" / "images" / "fault.webp").write_bytes((options.folder / "fault.webp").read_bytes())


if __name__ == "__main__":
    main()
