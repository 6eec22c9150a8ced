"""Ratchet on hostile but ordinary machines: each command works, or prints in one sentence what is missing.

The table is in `table.py`; docs/platforms.md has the same rows. A machine that cannot be made here is skipped with the
reason. `make test-machines` runs every command on every machine.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machines.table import MACHINES, Machine
from tests.support import GOOD_SCRIPT, SMALL, make_repository, write_script

PAGE = Path(__file__).parents[2] / "docs" / "platforms.md"
# What a checkout must not change.
BYTES = """from pathlib import Path

HERE = Path(__file__).parent


def test_bytes():
    assert (HERE / "lf.txt").read_bytes() == b"one\\ntwo\\n"
    assert (HERE / "crlf.txt").read_bytes() == b"one\\r\\ntwo\\r\\n"
    assert (HERE / "grüße.txt").read_bytes() == "grüße\\n".encode()
"""
FILES = {"tests/test_bytes.py": BYTES, "tests/lf.txt": "one\ntwo\n", "tests/grüße.txt": "grüße\n"}


def rows(*, in_ci: Callable[[Machine], bool] = lambda machine: machine.in_ci) -> pytest.MarkDecorator:
    """Parametrize over every machine, those that are not part of every run of the tests marked."""
    marks = {machine.name: [] if in_ci(machine) else [pytest.mark.certify] for machine in MACHINES}
    params = [pytest.param(machine, id=machine.name, marks=marks[machine.name]) for machine in MACHINES]
    return pytest.mark.parametrize("machine", params)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    (folder / "project" / "tests").mkdir(parents=True)
    (folder / "project" / "tests" / "crlf.txt").write_bytes(b"one\r\ntwo\r\n")
    place = make_repository(folder / "project", SMALL | FILES)
    write_script(place, GOOD_SCRIPT)
    return place


class Made:
    """A machine with a user's home and a project in it."""

    def __init__(self, machine: Machine, folder: Path, template: Path) -> None:
        self.machine, self.folder = machine, folder
        self.project = machine.prepare(folder, template)

    def ratchet(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.machine.run(self.folder, *args, cwd=self.project)

    def works_or_says_why(self, *args: str) -> bool:
        done = self.ratchet(*args)
        sentence = self.machine.fails.get(args[0])
        if sentence is None:
            assert done.returncode == 0, done.stdout + done.stderr
            return True
        assert done.returncode == 3, done.stdout + done.stderr
        text, hint = done.stderr.splitlines()
        assert text.startswith("ratchet: ") and sentence in text
        assert hint.startswith("  hint: ")
        return False


@pytest.fixture
def made(machine: Machine, template: Path) -> Iterator[Made]:
    if why := machine.why_not():
        pytest.skip(f"{machine.name} cannot be made here: {why}")
    folder = Path(tempfile.mkdtemp(prefix="ratchet-machines-"))
    folder.chmod(0o755)  # pytest's own folders are closed to the ordinary user
    yield Made(machine, folder, template)
    shutil.rmtree(folder)


@rows(in_ci=lambda _machine: True)
def test_doctor_finds_the_condition_before_a_run_does(machine: Machine, made: Made) -> None:
    done = made.ratchet("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {line[5:30].strip(): line for line in done.stdout.splitlines()}
    for what, words in machine.doctor.items():
        assert what in lines, done.stdout
        assert lines[what].startswith("-") and words in lines[what]
    unusual = {"home"} if not machine.home.isascii() else set()
    for what in {"home", "umask", "locale", "repository"} - machine.doctor.keys() - unusual:
        assert lines[what].startswith("ok")


@rows()
def test_a_run_and_its_proof_work_or_say_what_is_missing(made: Made) -> None:
    if made.works_or_says_why("run", "SPEC.md", "--agent", f"scripted:{made.project.parent}/script.json"):
        log = made.ratchet("runs", "--json")
        assert '"completed"' in log.stdout
    made.works_or_says_why("verify", "last")


@rows()
def test_isolated_tests_and_a_watch_work_or_say_what_is_missing(made: Made) -> None:
    made.works_or_says_why("test", "--isolated")
    made.works_or_says_why("watch", "--once")


@rows(in_ci=lambda machine: machine.name == "container")
def test_the_demo_works(made: Made) -> None:
    made.works_or_says_why("demo", "--into", str(made.project.parent / "demo"))


def test_the_page_about_platforms_has_the_rows_of_the_table() -> None:
    rows_of_page = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    reported = {name: doctor for name, _works, _lost, doctor in rows_of_page[1:]}
    assert list(reported) == [machine.name for machine in MACHINES if machine.doctor]
    for machine in MACHINES:
        for what, words in machine.doctor.items():
            assert f"`{what}`: " in reported[machine.name] and words in reported[machine.name]
