"""`python -m bench.tasks`: ten tasks of an on-call person, done in a real browser; clicks and seconds into the docs.

The seconds are those of the pages: nobody reads, and nobody thinks. See docs/dashboard.md.
"""

import argparse
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import sync_playwright

from bench import machine
from bench.command import carry_out
from bench.text import table
from tests.browser.oncall_world import on_call
from tests.browser.served import CHROMIUM, opened, served
from tests.browser.tasks import TASKS, Hand

_PAGE: Final = Path(__file__).parent.parent / "docs" / "dashboard.md"
_BUSY: Final = 5.0  # load of the machine: the environment, the dashboard and the browser alone make less
_BEGIN, _END = "<!-- tasks: python -m bench.tasks -->\n", "<!-- end of tasks -->"


def measure(folder: Path) -> dict[str, Any]:
    """Do each task once, and return what it took."""
    done = []
    with ExitStack() as stack:
        world = stack.enter_context(on_call(folder))
        address = stack.enter_context(served(folder))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        for task in TASKS.values():
            if task.prepare is not None:
                task.prepare(world)
            with opened(browser, address) as page:
                hand = Hand(page)
                task.do(hand)
                took = hand.seconds
            done.append({"task": task.name, "clicks": hand.clicks, "texts": hand.texts, "seconds": round(took, 1)})
        browser.close()
    about = machine.describe()
    return {"machine": about, "load": machine.load_average(), "at": time.strftime("%d %b %Y", time.gmtime()),
            "tasks": done}  # fmt: skip


def report(result: dict[str, Any]) -> str:
    """Return the numbers as text."""
    rows = [(each["task"], str(each["clicks"]), str(each["texts"]), f"{each['seconds']:.1f}") for each in _rows(result)]
    return table(("task", "clicks", "texts", "seconds"), rows)


def section(result: dict[str, Any]) -> str:
    """Return the table of the documents, with the machine and the day."""
    where, load = result["machine"], result["load"]
    lines = [
        f"| {each['task']} | {each['clicks']} | {each['texts']} | {each['seconds']:.1f} |" for each in _rows(result)
    ]
    about = f"Measured on {result['at']} with {where['cores']} cores ({where['cpu']}), load {load:.1f} at the end."
    if load > _BUSY:
        about += " Other programs kept the machine busy, so the seconds are too high."
    return "\n".join(["| task | clicks | texts typed | seconds |", "|---|---|---|---|", *lines, "", about, ""])


def _rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = result["tasks"]
    return rows


def _write(text: str) -> None:
    before, _, rest = _PAGE.read_text("utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    _PAGE.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}", "utf-8")


def main() -> None:
    """Measure and print; with `--docs` write the table into the documents, with `--out` all as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.tasks")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/dashboard.md")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    result = carry_out(options, measure, report)
    if options.docs:
        _write(section(dict(result)))


if __name__ == "__main__":
    main()
