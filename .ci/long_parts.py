"""The long tests in parts of at most 25 minutes: runs a part, and says where the code of its subject changed since.

pyproject.toml lists the parts, each with its tests and the paths of its subject. A whole run that was green is noted in
tests/long-parts.toml: with its commit, and with a hash of what subject and tests were, so that neither a rebase nor a
shallow clone makes it unknown.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = "tests/long-parts.toml"
_AMOUNTS = (
    "PROOF_",
    "SOAK_",
    "DAY_",
    "SCHEDULES",
    "FIRST_SCHEDULE",
    "TURNOUT_LOG_",
)  # variables that set how much is done
_HEAD = "# Written by `./turnout test-faults PART`: when each part of the long tests was green last. Commit it.\n"


def parts(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return the parts by name, each with `tests`, `subject` and its `minutes`, and with `marks` where not `long`."""
    tool = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]
    found: dict[str, dict[str, Any]] = tool["turnout"]["long-parts"]
    return found


def results(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Return what was noted of each part's last green run."""
    file = root / RESULTS
    return tomllib.loads(file.read_text("utf-8")) if file.exists() else {}


def content(part: Mapping[str, Any], root: Path = ROOT) -> str:
    """Return a hash of subject and tests as they are committed."""
    paths = sorted({*part["subject"], *(test.partition("::")[0] for test in part["tests"])})
    return hashlib.sha256(_git(root, "ls-tree", "HEAD", "--", *paths).encode()).hexdigest()[:16]


def warnings(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each part whose subject or tests changed since its last green run."""
    noted = results(root)
    for name, part in parts(root).items():
        last = noted.get(name)
        if last is None:
            yield f"{name}: no green run is noted; run ./turnout test-faults {name} (about {part['minutes']} minutes)"
        elif last["content"] != content(part, root):
            green = f"it was green on {last['date']} at {last['commit'][:8]}"
            run_it = f"run ./turnout test-faults {name} (about {part['minutes']} minutes)"
            yield f"{name}: its subject or tests changed since {green}; {run_it}"


def run(names: Sequence[str], options: Sequence[str], root: Path = ROOT) -> int:
    """Run parts one after the other, each to its end, and note those that are green; return 0 where all are."""
    outcomes = [_run_one(name, parts(root)[name], options, root) for name in names]
    return 0 if all(outcomes) else 1


def _run_one(name: str, part: Mapping[str, Any], options: Sequence[str], root: Path) -> bool:
    print(f"== {name}: about {part['minutes']} minutes", flush=True)
    before, began = _state(part, root), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-m", part.get("marks", "long"), f"--junit-xml={report}"]
        command += [*_workers(part, options), *options, *part["tests"]]
        is_green = subprocess.run(command, cwd=root, check=False).returncode == 0
        passed = report.read_text("utf-8").count("<testcase ") if report.exists() else 0
    minutes = (time.monotonic() - began) / 60
    why = _not_whole(options, before, _state(part, root))
    if is_green and why is None:
        _note(
            name,
            {"commit": _git(root, "rev-parse", "HEAD").strip(), "content": content(part, root)},
            minutes,
            passed,
            root,
        )
    said = "green" if is_green else "failed"
    print(
        f"== {name}: {said} after {minutes:.1f} minutes{f'; not noted: {why}' if is_green and why else ''}", flush=True
    )
    return is_green


def _workers(part: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    """Run two tests at once where they wait more than they work: by file, or single tests of one file."""
    if "-n" in options or part.get("alone"):
        return []
    return ["-n", "2", "--dist", "loadfile" if len(part["tests"]) > 1 else "load", "--no-loadscope-reorder"]


def _state(part: Mapping[str, Any], root: Path) -> str:
    """Return what subject and tests are now, and what of them is not committed."""
    paths = [*part["subject"], *(test.partition("::")[0] for test in part["tests"])]
    return content(part, root) + _git(root, "status", "--porcelain", "--", *paths)


def _not_whole(options: Sequence[str], before: str, after: str) -> str | None:
    """Return why a green run proves nothing of the commit, None where it does."""
    set_here = sorted(name for name in os.environ if name.startswith(_AMOUNTS))
    if [each for each in options if each not in {"-q", "-v"}]:
        return "it ran with options"
    if set_here:
        return f"{', '.join(set_here)} set its amount"
    if before != after:
        return "its subject changed while it ran"
    return "its subject is not committed" if "\n" in before else None


def _note(name: str, what: Mapping[str, str], minutes: float, passed: int, root: Path) -> None:
    noted = results(root)
    noted[name] = {**what, "date": time.strftime("%Y-%m-%d"), "minutes": round(minutes, 1), "passed": passed}
    lines = [_HEAD]
    for each, values in sorted(noted.items()):
        lines += [f"\n[{each}]\n", *(f"{key} = {_toml(value)}\n" for key, value in values.items())]
    (root / RESULTS).write_text("".join(lines), "utf-8")


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def main(arguments: Sequence[str]) -> int:
    """Print warnings with `--check`; else run the parts that the leading words name, or `all`."""
    if list(arguments) == ["--check"]:
        found = list(warnings())
        print("\n".join(f"warning: {line}" for line in found) if found else "all parts are green as committed")
        return 0
    first_option = next((place for place, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    names = list(parts()) if list(arguments[:first_option]) == ["all"] else arguments[:first_option]
    unknown = [each for each in names if each not in parts()]
    if unknown or not names:
        said = f"there is no part {', '.join(unknown)}" if unknown else "name a part"
        print(f"turnout: {said}. There are, with their minutes:", file=sys.stderr)
        print("\n".join(f"  {name:12} {part['minutes']:3}" for name, part in parts().items()), file=sys.stderr)
        return 2
    return run(names, arguments[first_option:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
