"""Fail-points stand between every two effects on the data path, and cost nothing where no test asks for them."""

import ast
import fcntl
import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from pipeline.base import failpoints
from pipeline.base.failpoints import EFFECTS, POINTS, Injected, effect, hit

PIPELINE: Final = Path(failpoints.__file__).parents[1]
DATA_PATH: Final = (
    "base/durable_file.py",
    "data/pins.py",
    "data/query_log.py",
    "data/contracts/registry.py",
    "lake/delta/*.py",
    "data/ingest/*.py",
    "data/maintenance/*.py",
    "data/repair/*.py",
    "store/stream_control.py",
    "store/processes/drivers.py",
    "store/games.py",
    "store/processes/leases.py",
    "store/onboarding.py",
    "store/sources.py",
    "store/database/engine.py",
    "data/streams/**/*.py",
)
EFFECT_CALLS: Final = {
    "link", "rename", "unlink", "remove", "rmtree", "rmdir", "mkdir", "makedirs", "move", "copyfile", "symlink_to",
    "hardlink_to", "touch", "write_text", "write_bytes", "write_table", "OSFile", "ParquetWriter",
    "create_write_transaction", "create_checkpoint", "add_columns", "set_table_properties", "vacuum", "compact",
    "begin", "save", "cleanup_metadata", "utime",
}  # fmt: skip
"""Names of functions and methods that change the world."""

HANDED: Final = {"drafted", "published"}
"""Parameters of `durable_file` and of storages that take the name of an effect."""

OF_LOCATIONS: Final = {"delete", "make"}
"""Methods of a location that change the world; `put` and `put_if_absent` have points of their own."""

IN_MEMORY: Final = {"_failed", "_files", "_held", "_noted"}
"""Attributes whose `clear` empties a collection, not a folder."""

WITHOUT_POINTS: Final = {
    "data/streams/active_games.py": "nothing depends on what it leaves: a file that is torn or gone tells nothing",
    "lake/delta/parquet.py": "its callers have the points, or it writes into memory",
    "base/durable_file.py:make_folder": "its callers have the point",
    "data/streams/writing/split.py:_ipc": "writes into memory",
    "data/maintenance/run.py:alone": "a lock that saves work and guards nothing",
    "store/database/engine.py:open_store": "makes the folder of an environment before anything is in it",
    "store/database/engine.py:refused_write": "takes out again what it puts in, in one transaction",
    "store/games.py:set_priority": "no row depends on a priority",
    "data/repair/quarantined.py": "reads: what it removes is in a database of its own in memory",
}


def _modules() -> list[Path]:
    found = {pattern: set(PIPELINE.glob(pattern)) for pattern in DATA_PATH}
    assert all(found.values()), "a module has moved"
    return sorted(set().union(*found.values()))


def _is_effect(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = getattr(getattr(call.func, "value", None), "id", "")
    if owner == "durable_file" or (name == "touch" and isinstance(call.func, ast.Name)):
        return False  # functions of ours, which have points of their own
    if name == "replace":  # of a path: a string's has two arguments, a value's has keywords
        return isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
    if name == "open":
        modes = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        return any(set(mode) & set("wax+") and len(mode) <= 3 for mode in modes)
    if name in OF_LOCATIONS:
        return isinstance(call.func, ast.Attribute) and not call.args and not call.keywords
    if owner == "parquet":
        return name in {"write", "writer"}
    if name == "create":
        return owner == "DeltaTable"
    if name == "clear":  # of a location
        return not call.args and getattr(getattr(call.func, "value", None), "attr", "") not in IN_MEMORY
    if name == "move" and len(call.args) == 1:  # of a location
        return True
    if name in {"remove", "copyfile", "move"}:
        return owner in {"os", "shutil"}
    return name in EFFECT_CALLS


def _bare(node: ast.AST, where: str = "") -> Iterator[tuple[str, int]]:
    """Yield function and line of each effect that no `with effect(...)` encloses, or that is a block's second one."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    if isinstance(node, ast.Call) and _is_effect(node):
        yield where, node.lineno
    if isinstance(node, ast.With) and any(_effects(item.context_expr) for item in node.items):
        marked = False
        within: list[tuple[str, int]] = []
        for part in (*(item.context_expr for item in node.items), *node.body):
            found = list(_bare(part, where))
            if marked:
                within += found
            else:
                yield from found
            marked = marked or _effects(part)
        yield from within[1:]
        return
    for child in ast.iter_child_nodes(node):
        yield from _bare(child, where)


def _effects(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "effect"


def _named(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        handed = {each.arg: each.value for each in node.keywords if each.arg in HANDED}
        if _effects(node) and getattr(node.args[0], "id", "") not in HANDED:
            handed[""] = node.args[0]
        for name in handed.values():
            if getattr(name, "id", "") in HANDED:
                continue  # a storage hands it on
            assert isinstance(name, ast.Constant), "an effect's name is written where it happens"
            yield str(name.value)


def test_every_effect_on_the_data_path_has_a_point_before_and_one_after() -> None:
    """A proof over orders sees only the orders between points: no two effects may lie between the same two."""
    bare = [
        (f"{file.relative_to(PIPELINE)}:{where}", line)
        for file in _modules()
        for where, line in _bare(ast.parse(file.read_text("utf-8")))
    ]
    unexcused = [
        f"{place} line {line}"
        for place, line in bare
        if place not in WITHOUT_POINTS and place.partition(":")[0] not in WITHOUT_POINTS
    ]
    assert unexcused == [], "put each of them into a `with effect(...)` of pipeline/base/failpoints.py"


def test_the_names_of_effects_are_those_that_happen() -> None:
    """A name that nothing has any more, or that is not listed, would leave a hole in the proofs that arm it."""
    used = {name for file in PIPELINE.rglob("*.py") for name in _named(ast.parse(file.read_text("utf-8")))}
    assert sorted(EFFECTS) == sorted(used)


@pytest.mark.parametrize(
    ("code", "bare"),
    [
        ("def f(p):\n    p.unlink()", 1),
        ("def f(p):\n    with effect('x'):\n        p.unlink()", 0),
        ("def f(p):\n    with p.open('w') as file:\n        pass", 1),
        ("def f(p):\n    with effect('x'), p.open('w', encoding='utf-8') as file:\n        pass", 0),
        ("def f(p):\n    with p.open('w') as file, effect('x'):\n        pass", 1),
        ("def f(p, q):\n    with effect('x'):\n        p.unlink()\n        q.unlink()", 1),
        ("def f(p, q):\n    p.replace(q)\n    'a'.replace('b', 'c')", 1),
        ("def f(p):\n    p.open('rb')", 0),
        ("def f(e):\n    with e.begin() as c:\n        pass", 1),
        ("def f(p):\n    DeltaTable.create(p)\n    CursorTable.create(p)", 1),
    ],
)
def test_an_effect_without_points_is_found(code: str, bare: int) -> None:
    """The check over the code is proven: it finds what it is for, and nothing else."""
    assert bare == len(list(_bare(ast.parse(code))))


def test_a_block_is_a_point_before_and_one_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook on each point sees the effect not yet done, then done; a failed effect has no point after it."""
    seen: list[str] = []
    monkeypatch.setattr(failpoints, "on_hit", seen.append)
    with effect("publish_commit"):
        seen.append("it happens")
    with pytest.raises(OSError, match="disk"), effect("write_data_file"):
        raise OSError("disk")
    assert seen == ["before_publish_commit", "it happens", "after_publish_commit", "before_write_data_file"]


def test_each_effects_points_can_be_armed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points around effects fail like the others: by the file that says which."""
    monkeypatch.setenv(failpoints.ENVIRON, str(tmp_path))
    (tmp_path / "armed").write_text("after_publish_pin raise 2\n")
    with effect("publish_pin"):
        pass
    with pytest.raises(Injected), effect("publish_pin"):
        pass
    with pytest.raises(ValueError, match="no fail-point"):
        hit("after_tea")
    assert {"before_publish_pin", "after_publish_pin"} <= set(POINTS)


def test_no_two_points_have_one_name() -> None:
    """A point is named by what is armed and by what a trace shows."""
    assert all(first != second for first, second in itertools.pairwise(sorted(POINTS)))


def test_a_process_that_stands_still_at_a_point_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that was stopped while it counted a hit kept its heir from starting: the file was locked for ever."""
    monkeypatch.setenv(failpoints.ENVIRON, str(tmp_path))
    with (tmp_path / "after_store_commit.hits").open("a") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        code = "from pipeline.base.failpoints import hit; hit('after_store_commit')"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=30)


def test_each_hit_of_several_processes_has_a_number_of_its_own(tmp_path: Path) -> None:
    """A fault at the n-th hit fires once, however many processes share the folder."""
    code = (
        "import sys; from pathlib import Path; from pipeline.base.failpoints import _append\n"
        "print(*(_append(Path(sys.argv[1]), 'x') for _ in range(2_000)))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "hits")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    numbers = [int(number) for each in started for number in each.communicate(timeout=60)[0].split()]
    assert sorted(numbers) == list(range(1, 8_001))
