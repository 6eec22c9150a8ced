"""The prepared interpreter: what it says is what a cold one says, and nothing of a run outlives it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.executor import TestRun
from ratchet.checks.run.prefork import PreforkServer
from ratchet.core.report import Failure, Report, ReportStatus
from ratchet.process import supervise
from tests.app.watch.support import FILES

ODD = """
import atexit, os, random, subprocess, sys, threading, warnings
import pytest

def test_environment(): assert os.environ["PYTHONHASHSEED"] == "0" and sys.argv[0].endswith("__main__.py")
def test_main(): assert sys.modules["__main__"].__spec__.name == "pytest.__main__"
def test_path(): assert sys.path[0] == os.getcwd()
def test_fails(): assert [1, 2] == [1, 3]
def test_subprocess(): assert subprocess.run([sys.executable, "-c", "pass"]).returncode == 0
def test_thread():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
def test_alone(): assert threading.active_count() == 1
def test_output(capfd):
    os.write(1, b"seen")
    assert capfd.readouterr().out == "seen"
def test_warns(): warnings.warn("old", DeprecationWarning)
@pytest.mark.xfail
def test_expected(): assert False
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
def test_fixture_error(nothing_like_it): pass
"""
Story = Callable[[PreforkServer, TestRun, Path], Awaitable[None]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    for name, content in (FILES | {"tests/test_odd.py": ODD}).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def run(folder: Path, story: Story) -> None:
    """A story with a prepared interpreter, which is gone when it ends."""

    async def whole() -> None:
        place = folder.parent / "w"
        place.mkdir()
        warm = PreforkServer(place, str(folder))
        warm.modules = ["json", "decimal", "xml.etree.ElementTree", "email.message"]
        tests = TestRun(
            targets=detect(folder),
            timeout_s=60,
            env=allowed_environment(),
            channel_dir=str(warm.channel),
            run_command=warm.run,
        )
        try:
            await story(warm, tests, folder.parent / "log")
        finally:
            await warm.discard()

    asyncio.run(whole())


def reported(report: Report) -> list[tuple[object, ...]]:
    rows = [(test, test.failure or Failure()) for test in report.tests]
    return [(test.id, test.status, test.reason, failure.message, failure.actual) for test, failure in rows]


def test_it_says_what_a_cold_run_says(folder: Path) -> None:
    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        cold = msgspec.structs.replace(tests, run_command=TestRun(targets=[], timeout_s=1, env={}).run_command)
        expected = await cold.run(folder, log=log)
        for _ in range(2):
            report = await tests.run(folder, log=log)
            assert reported(report) == reported(expected)
            assert (report.status, report.exit_code) == (expected.status, expected.exit_code)
        assert not warm.cold, "it was prepared, not done cold"

    run(folder, story)


def test_a_changed_file_is_loaded_anew_even_within_the_same_second_and_size(folder: Path) -> None:
    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        (folder / "tests" / "test_odd.py").unlink()
        before = (folder / "shapes.py").stat()
        assert (await tests.run(folder, log=log)).totals.failed == 0
        (folder / "shapes.py").write_text((folder / "shapes.py").read_text().replace("a * b", "a - b"))
        os.utime(folder / "shapes.py", ns=(before.st_atime_ns, before.st_mtime_ns))
        warm.discard_bytecode(["shapes.py"])
        assert (await tests.run(folder, log=log)).totals.failed == 1

    run(folder, story)


def test_a_cancelled_run_is_over_with_everything_it_started_when_the_caller_hears_of_it(folder: Path) -> None:
    pids = folder.parent / "pids"
    (folder / "tests" / "test_odd.py").write_text(
        "import os, subprocess, time\n\ndef test_long():\n"
        "    child = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n    time.sleep(3600)\n"
    )

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        work = asyncio.create_task(tests.run(folder, log=log))
        async with asyncio.timeout(60):
            while not pids.exists() or not pids.read_text():  # noqa: ASYNC110 — another process writes it
                await asyncio.sleep(0.01)
        work.cancel()
        await asyncio.wait({work})
        assert not [pid for pid in pids.read_text().split() if Path(f"/proc/{pid}").exists()]
        (folder / "tests" / "test_odd.py").unlink()
        assert (await tests.run(folder, log=log)).totals.passed == 3
        assert not warm.cold

    run(folder, story)


def test_configuration_and_modules_it_has_loaded_make_it_stale(folder: Path) -> None:
    (folder / "decimal_user.py").write_text("")

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        warm.modules = ["shapes"]
        env = tests.env | {"PYTHONPATH": str(folder)}
        await msgspec.structs.replace(tests, env=env).run(folder, log=log)
        assert warm.is_stale(["shapes.py"]), "a module of the project came along"
        assert warm.is_stale(["sub/pyproject.toml"])
        assert not warm.is_stale(["tests/test_area.py"])

    run(folder, story)


def test_a_module_that_warns_is_not_loaded_before(folder: Path) -> None:
    """Under `filterwarnings = error` a cold run fails on it, and so must a warm one."""
    noisy = folder.parent / "noisy"
    noisy.mkdir()
    (noisy / "loud.py").write_text("import warnings\nwarnings.warn('old', DeprecationWarning)\n")
    (folder / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\npythonpath = ["."]\nfilterwarnings = ["error"]\n'
    )
    (folder / "tests" / "test_odd.py").write_text("import loud\n\ndef test_loud():\n    pass\n")

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        warm.modules = ["json", "loud"]
        env = tests.env | {"PYTHONPATH": str(noisy)}
        report = await msgspec.structs.replace(tests, env=env).run(folder, log=log)
        assert [error.type for error in report.collection_errors] == ["DeprecationWarning"]
        assert not warm.cold

    run(folder, story)


def test_what_is_not_pytest_runs_cold(folder: Path) -> None:
    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        done = await warm.run(
            [sys.executable, "-c", "raise SystemExit(3)"], cwd=folder, env={}, output=log, timeout_s=60
        )
        assert done.exit_code == 3

    run(folder, story)


REPLACES = """
import os

def test_replaces_what_it_is_given():
    shared = os.path.dirname(os.environ["PROBE_REQUEST"])
    for name in ("request.json", "modules.json", "reaper.py", "warm.log", "bytecode"):
        place = os.path.join(shared, name)
        if os.path.isdir(place):
            os.rename(place, place + ".old")
        elif os.path.lexists(place):
            os.remove(place)
        os.mkfifo(place) if os.environ["PROBE_PIPES"] else os.symlink(os.environ["PROBE_TARGET"], place)
"""


@pytest.mark.parametrize("pipes", ["", "1"])
def test_links_and_pipes_in_the_place_of_requests_lead_nowhere(folder: Path, pipes: str) -> None:
    (folder / "tests" / "test_odd.py").unlink()
    (folder / "tests" / "test_links.py").write_text(REPLACES)
    (target := folder.parent / "other" / "file").parent.mkdir()
    target.write_text("precious")

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        more = {"PROBE_REQUEST": str(warm.shared / "request.json"), "PROBE_TARGET": str(target), "PROBE_PIPES": pipes}
        tests = msgspec.structs.replace(tests, env=tests.env | more)
        for _ in range(2):
            assert (await tests.run(folder, log=log)).totals.passed == 4
            await warm.discard()
        (folder / "shapes.py").touch()
        warm.discard_bytecode(["shapes.py"])
        assert (await tests.run(folder, log=log)).totals.passed == 4
        assert not warm.cold

    run(folder, story)
    assert target.read_text() == "precious"


def test_byte_code_is_not_removed_by_way_of_a_link(folder: Path) -> None:
    async def story(warm: PreforkServer, _tests: TestRun, _log: Path) -> None:
        (kept := folder.parent / f"other{folder}" / "shapes.cpython-311.pyc").parent.mkdir(parents=True)
        kept.touch()
        (warm.shared / "bytecode").symlink_to(folder.parent / "other")
        warm.discard_bytecode(["shapes.py"])
        assert kept.exists()

    run(folder, story)


@pytest.mark.parametrize("reply", ["exit x 0", "exit 99999999999999999999 0", "exit", "0 0", "exit 0 \u0663"])
def test_an_interpreter_that_answers_nonsense_ends_no_more_than_its_run(folder: Path, reply: str) -> None:
    (folder / "tests" / "test_odd.py").unlink()
    (folder / "evil.py").write_text(
        "import __main__\nbefore = __main__._send\n"
        f"__main__._send = lambda to, text: before(to, {reply!r} if text.startswith('exit') else text)\n"
    )

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        warm.modules = ["evil"]
        assert (await tests.run(folder, log=log)).status is not ReportStatus.PASSED
        warm.modules = []
        assert (await tests.run(folder, log=log)).totals.passed == 3

    run(folder, story)


def test_an_interpreter_whose_first_line_has_no_end_is_not_used(folder: Path) -> None:
    (folder / "tests" / "test_odd.py").unlink()
    (folder / "evil.py").write_text(
        "import __main__\n"
        "def flood(to, text):\n    while True:\n        to.sendall(b'x' * (1 << 20))\n"
        "__main__._send = flood\n"
    )

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        warm.modules = ["evil"]
        assert (await tests.run(folder, log=log)).totals.passed == 3
        assert warm.cold

    run(folder, story)


def test_a_prepared_run_that_floods_its_output_is_stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "WRITTEN_MAX_BYTES", 1 << 20)
    (folder / "tests" / "test_odd.py").write_text(
        "import os, time\n\ndef test_floods(capfd):\n"
        "    with capfd.disabled():\n        os.write(1, b'x' * (2 << 20))\n        time.sleep(50)\n"
    )

    async def story(warm: PreforkServer, tests: TestRun, log: Path) -> None:
        report = await tests.run(folder, log=log)
        assert report.status is not ReportStatus.PASSED
        assert b"stopped: it wrote more than 1 MiB" in log.read_bytes()
        assert report.duration_s < 40
        assert not warm.cold

    run(folder, story)
