"""Runs the real launcher in a checkout of stubs: a Python, a Java and an apt-get that only note what they are asked."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.checkout import ROOT

LAUNCHER = ROOT / "turnout"

PYTHON = """#!/bin/sh
case "$*" in
-V) echo "Python 3.11.2" ;;
*fcntl*) exec "{python}" "$@" ;;
'-c '*) ;;
*' venv '*|'-m venv '*) echo venv >>"{log}"
    for last; do :; done
    mkdir -p "$last/bin"
    cp "$0" "$last/bin/python"
    printf '#!/bin/sh\\nprintf "%%s|" "$PWD" "$TURNOUT_HOME" "$@"\\n' >"$last/bin/turnout"
    chmod +x "$last/bin/turnout" ;;
*pipeline.platforms.local.fetch*) echo "fetch $3 $4${{5:+ $5}}" >>"{log}"
    mkdir -p "$4/spark"; rm -f "$4/spark/a.jar"; touch "$4/spark/a.jar" ;;
*long_parts*) echo "$*" >>"{log}" ;;
*' pytest '*|'-m pytest '*) echo "pytest $*" >>"{log}" ;;
*pip*) echo Collecting; echo "$*" >>"{log}"; [ ! -e "{log}.no-network" ] || {{ echo "pip: no network" >&2; exit 1; }} ;;
*) echo "unexpected: $*" >>"{log}"; exit 9 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A checkout (its path has a space), the folder of stubs, and the log of what they were asked."""

    home: Path
    stubs: Path
    log: Path

    def start(self, *arguments: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        env = {**kept, "PATH": f"{self.stubs}:/usr/bin:/bin", "XDG_CACHE_HOME": f"{self.home}/the cache"}
        command = ["/bin/sh", str(self.home / "turnout"), *arguments]
        return subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )

    def run(self, *arguments: str, cwd: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*arguments, cwd=cwd)
        out, err = process.communicate(timeout=15)
        return process.returncode, out, err

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def stub(self, name: str, script: str) -> None:
        path = self.stubs / name
        path.write_text(script)
        path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home, stubs, log = tmp_path / "my checkout", tmp_path / "stubs", tmp_path / "log"
    for folder in (home / "pipeline" / "platforms" / "local", stubs):
        folder.mkdir(parents=True)
    shutil.copy(LAUNCHER, home / "turnout")
    for file in (
        "pyproject.toml",
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-s3.lock",
        "pipeline/platforms/local/jars.lock",
    ):
        (home / file).write_text(f"{file}\nsetuptools==1\n")
    made = Machine(home, stubs, log)
    made.stub("python3", PYTHON.format(python=sys.executable, log=log))
    made.stub("java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    made.stub("apt-get", f'#!/bin/sh\necho "apt-get $*" >>"{log}"\nexit 1\n')
    made.stub("apt-cache", "#!/bin/sh\nexit 0\n")
    made.stub("id", "#!/bin/sh\necho 1000\n")
    return made


def test_first_use_sets_up_and_then_starts_the_command(machine: Machine, tmp_path: Path) -> None:
    """A newcomer needs one command: from any folder, its arguments arrive untouched."""
    code, out, err = machine.run("demo", "two words", "", cwd=tmp_path)
    assert (code, out) == (0, f"{tmp_path}|{machine.home}|demo|two words||"), err
    calls = machine.calls()
    assert calls[0] == "venv"
    locked = [line for line in calls if "requirements.lock" in line or "build.lock" in line]
    assert len(locked) == 2
    assert all("--require-hashes --no-deps --no-build-isolation" in line for line in locked)
    assert calls[-1] == f"fetch {machine.home}/the cache/turnout {machine.home}/.venv/jars"


def test_second_use_resolves_nothing(machine: Machine) -> None:
    """A set-up checkout starts at once: neither pip nor Java nor a lock is touched."""
    machine.run("demo")
    before = machine.calls()
    (machine.stubs / "java").unlink()
    shutil.rmtree(machine.home / "the cache")
    code, out, _ = machine.run("demo")
    assert (code, out.rsplit("|", 2)[1]) == (0, "demo")
    assert machine.calls() == before
    assert not (machine.home / "the cache").exists()


@pytest.mark.parametrize("file", ["requirements.lock", "pipeline/platforms/local/jars.lock", "pyproject.toml"])
def test_changed_lock_is_installed_on_the_next_use(machine: Machine, file: str) -> None:
    """After a pull nobody has to think of set-up, and the environment is kept."""
    machine.run("demo")
    before = len(machine.calls())
    with (machine.home / file).open("a") as lock:
        lock.write("more\n")
    assert machine.run("demo")[0] == 0
    again = machine.calls()[before:]
    assert any("requirements.lock" in line for line in again)
    assert "venv" not in again


def test_emptied_cache_is_filled_again(machine: Machine, tmp_path: Path) -> None:
    """A jar whose link leads nowhere is fetched before anything starts."""
    machine.run("demo")
    jar = machine.home / ".venv" / "jars" / "spark" / "a.jar"
    jar.unlink()
    jar.symlink_to(tmp_path / "gone")
    machine.run("demo")
    assert sum(line.startswith("fetch") for line in machine.calls()) == 2


def test_moved_checkout_gets_a_new_environment(machine: Machine, tmp_path: Path) -> None:
    """Programs of an environment name its path, so a moved one is made again."""
    machine.run("demo")
    moved = tmp_path / "elsewhere"
    machine.home.rename(moved)
    code, out, _ = Machine(moved, machine.stubs, machine.log).run("demo")
    assert (code, out.split("|")[1]) == (0, str(moved))
    assert machine.calls().count("venv") == 2


def test_failed_install_is_told_and_tried_again(machine: Machine) -> None:
    """A half set-up checkout never counts as ready."""
    Path(f"{machine.log}.no-network").touch()
    code, out, err = machine.run("demo")
    assert (code, out) == (1, "")
    assert "pip could not install what requirements.lock lists" in err
    assert sum(" pip " in line for line in machine.calls()) == 1
    Path(f"{machine.log}.no-network").unlink()
    assert machine.run("demo")[0] == 0


def test_two_launchers_at_once_set_up_once(machine: Machine) -> None:
    """Two first uses at the same moment leave one whole environment."""
    both = [machine.start("demo"), machine.start("demo")]
    assert [process.communicate(timeout=15)[0].rsplit("|", 2)[1] for process in both] == ["demo", "demo"]
    calls = machine.calls()
    assert (calls.count("venv"), sum(line.startswith("fetch") for line in calls)) == (1, 1)


def test_foreign_environment_is_not_touched(machine: Machine) -> None:
    """A .venv somebody else made is never removed."""
    (machine.home / ".venv").mkdir()
    (machine.home / ".venv" / "mine").touch()
    code, _, err = machine.run("demo")
    assert code == 1
    assert "turnout did not make it" in err
    assert (machine.home / ".venv" / "mine").exists()


def test_missing_java_is_told_with_the_exact_command(machine: Machine) -> None:
    """Who is not root is told what to run, and nothing is attempted."""
    machine.stub("java", "#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    code, _, err = machine.run("demo")
    assert code == 1
    assert "apt-get install -y --no-install-recommends openjdk-17-jre-headless" in err
    assert machine.calls() == []


def test_root_is_told_before_anything_is_installed(machine: Machine) -> None:
    """What is missing is installed only after saying so; a failing apt-get is one clear sentence."""
    machine.stub("java", "#!/bin/sh\nexit 1\n")
    machine.stub("id", "#!/bin/sh\necho 0\n")
    code, _, err = machine.run("demo")
    assert code == 1
    assert "Java 17 or later is missing. Installing:" in err
    assert "apt-get could not install" in err
    assert machine.calls()[0] == "apt-get update -qq"


@pytest.mark.parametrize("is_there", [True, False])
def test_root_installs_the_tools_of_tests_beside_the_packages(machine: Machine, is_there: bool) -> None:
    """Pip and apt work at the same time; jars need Java, so they come after both, and a failure of apt ends set-up."""
    if not is_there:
        machine.stub("java", "#!/bin/sh\nexit 1\n")
    machine.stub("apt-get", "#!/bin/sh\nsleep 0.2\nexit 1\n")
    machine.stub("id", "#!/bin/sh\necho 0\n")
    for name in ("chromium", "promtool", "prometheus", "alertmanager", "strace", "initdb"):
        machine.stub(name, "#!/bin/sh\n")
    code, _, err = machine.run("setup", "--dev")
    assert code == (0 if is_there else 1), err
    assert any("-r requirements-dev.lock" in line for line in machine.calls())
    assert any(line.startswith("fetch") for line in machine.calls()) == is_there
    assert ("apt-get could not install" in err) != is_there


def test_wrong_java_home_is_refused(machine: Machine) -> None:
    """A chosen Java is used or refused, never replaced."""
    launcher = machine.home / "turnout"
    launcher.write_text(launcher.read_text().replace("set -eu", "set -eu; JAVA_HOME=/nowhere", 1))
    code, _, err = machine.run("demo")
    assert code == 1
    assert "JAVA_HOME is /nowhere" in err


def test_setup_checks_everything_again(machine: Machine) -> None:
    """`setup` repairs: it asks pip and the jars even when all looks ready, and starts nothing."""
    machine.run("demo")
    before = len(machine.calls())
    code, out, _ = machine.run("setup")
    assert (code, out) == (0, "")
    again = machine.calls()[before:]
    assert [line for line in again if line == "venv"] == []
    assert again[-1].startswith("fetch")
    assert machine.run("setup", "--all")[0] == 1


def test_setup_for_s3_installs_its_server_and_jars(machine: Machine) -> None:
    """The packages and jars of S3 come with their own set-up alone."""
    machine.run("demo")
    assert not any(line.endswith(("s3.lock", " s3")) for line in machine.calls())
    assert machine.run("setup", "--s3")[0] == 0
    packages, _, jars = machine.calls()[-3:]
    assert "--require-hashes" in packages
    assert packages.endswith("-r requirements.lock -r requirements-s3.lock")
    assert jars == f"fetch {machine.home}/the cache/turnout {machine.home}/.venv/jars s3"


@pytest.mark.parametrize(("words", "times"), [(("paths", "--env-dir", "s3://b/prod"), 1), (("paths",), 0)])
def test_a_bucket_is_set_up_for_when_it_is_named(machine: Machine, words: tuple[str, ...], times: int) -> None:
    """The first use of a bucket fetches its jars, and the second nothing."""
    machine.run("demo")
    for _ in range(2):
        assert machine.run(*words)[0] == 0
    assert sum(line.endswith(" s3") for line in machine.calls()) == times


@pytest.mark.parametrize(
    ("words", "folders", "chosen"),
    [
        (("test",), ("tests/packaging", "tests/spark", "tests/workspace", "tests/unit"), "not long"),
        (("test", "spark"), ("tests/spark",), "not long"),
        (("test", "faults"), ("tests/faults",), None),
    ],
)
def test_long_tests_run_by_parts_only(
    machine: Machine, words: tuple[str, ...], folders: tuple[str, ...], chosen: str | None
) -> None:
    """A test that is marked `long` is none of an ordinary run's; `test_long_parts.py` finds each in a part.

    Unit tests come last: their many quick files keep both workers busy to the end.
    """
    (machine.home / "tests" / "worlds").mkdir(parents=True)  # no tier: it has no test
    for folder in ("faults", "packaging", "spark", "unit/store", "workspace"):
        (machine.home / "tests" / folder).mkdir(parents=True)
        (machine.home / "tests" / folder / "test_a.py").touch()
    (machine.home / ".ci").mkdir()
    (machine.home / ".ci" / "check").write_text("#!/bin/sh\n")
    (machine.home / ".ci" / "check").chmod(0o755)
    assert machine.run(*words)[0] == 0
    command = machine.calls()[-1]
    assert command.startswith("pytest ")
    assert tuple(each for each in command.split() if each.startswith("tests/")) == folders
    assert (f"-m {chosen}" in command) if chosen else ("long" not in command)


def test_parts_of_the_long_tests_get_their_words(machine: Machine) -> None:
    """The launcher sets up what tests need, and hands over which parts to run."""
    assert machine.run("test-faults", "owners", "steering", "-k", "two words")[0] == 0
    assert machine.calls()[-1] == ".ci/long_parts.py owners steering -k two words"


def test_every_server_that_comes_with_a_package_is_stopped() -> None:
    """Debian starts these services at once; tests start their own, and a user asked for none."""
    text = LAUNCHER.read_text("utf-8")
    installed = set(re.findall(r"printf '([a-z0-9-]+) '", text))
    (stopped,) = re.findall(r"for service in ([a-z -]+); do", text)
    assert set(stopped.split()) == installed - {"chromium", "libatomic1", "strace"}
