"""`ratchet watch` as a developer meets it: saves, switches, broken tests, and what it says of them."""

from __future__ import annotations

import asyncio
import shutil
import venv
from pathlib import Path

import pytest

from ratchet import config
from ratchet.app.tests import Suite
from ratchet.app.watch import FILE, RunScope, TestWatcher, WatchOptions, read_state, states
from ratchet.core.report import TestStatus
from ratchet.core.watch import Colour, WatchStage, WatchState
from ratchet.workspace.mirror import MirrorSource
from tests.app.watch.support import PATIENCE_S, edit, small, watched
from tests.support import git, ratchet


def is_final(state: WatchState) -> bool:
    return state.stage is WatchStage.IDLE


def test_a_save_turns_it_red_with_expected_and_actual_and_the_next_one_green(tmp_path: Path) -> None:
    async def story() -> None:
        repo = small(tmp_path)
        async with watched(repo) as (_, reported):
            assert (await reported.idle()).colour is Colour.GREEN
            edit(repo / "shapes.py", "a * b", "a + b")
            first = await reported.until(lambda state: state.affected_s is not None)
            assert first.colour is Colour.RED
            failure = first.failing[0].failure
            assert failure and (failure.expected, failure.actual) == ("6", "5")
            assert [test.id for test in first.failing] == ["tests/test_area.py::test_area"]
            assert (await reported.idle()).colour is Colour.RED
            edit(repo / "shapes.py", "a + b\n\n\ndef edge", "a * b\n\n\ndef edge")
            assert (await reported.idle()).colour is Colour.GREEN

    asyncio.run(story())


def test_only_affected_tests_run_first_and_green_comes_only_after_all_tests(tmp_path: Path) -> None:
    async def story() -> None:
        repo = small(tmp_path)
        async with watched(repo) as (_, reported):
            await reported.idle()
            reported.seen.clear()
            edit(repo / "shapes.py", "2 * (a + b)", "2 * a + 2 * b")
            await reported.idle()
            affected = [state for state in reported.seen if state.stage is WatchStage.AFFECTED]
            assert affected[0].chosen == 1
            assert {state.colour for state in reported.seen if state.stage is not WatchStage.IDLE} == {Colour.PENDING}
            assert reported.seen[-1].totals.tests == 3

    asyncio.run(story())


def test_a_run_that_could_not_be_whole_leaves_the_map_as_it_was(tmp_path: Path) -> None:
    async def story() -> None:
        repo = small(tmp_path)
        async with watched(repo) as (_, reported):
            await reported.idle()
            edit(repo / "shapes.py", "return a * b", "return a * (b")
            assert (await reported.idle()).broken
            reported.seen.clear()
            edit(repo / "shapes.py", "return a * (b", "return b * a")
            assert (await reported.idle()).colour is Colour.GREEN
            affected = [state for state in reported.seen if state.stage is WatchStage.AFFECTED]
            assert affected[0].chosen == 1, "whoever imports the file would be reached without a map"

    asyncio.run(story())


def test_a_data_file_reaches_the_tests_that_read_it(tmp_path: Path) -> None:
    async def story() -> None:
        repo = small(tmp_path)
        async with watched(repo) as (_, reported):
            await reported.idle()
            (repo / "words.txt").write_text("three\n")
            first = await reported.until(lambda state: state.affected_s is not None)
            assert [test.id for test in first.failing] == ["tests/test_words.py::test_words"]

    asyncio.run(story())


def test_a_test_that_puts_links_where_its_records_go_does_not_end_the_watch(tmp_path: Path) -> None:
    links = (
        "import os, shutil\n\ndef test_links():\n    place = os.environ.get('_RATCHET_IMPACT', '')\n"
        "    if place:\n        shutil.rmtree(place)\n        os.symlink('/nowhere/at/all', place)\n"
    )

    async def story() -> None:
        repo = small(tmp_path, **{"tests/test_links.py": links})
        async with watched(repo) as (_, reported):
            assert (await reported.idle()).colour is Colour.GREEN
            edit(repo / "shapes.py", "a * b", "a + b")
            assert (await reported.idle()).colour is Colour.RED
            edit(repo / "shapes.py", "a + b\n\n\ndef edge", "a * b\n\n\ndef edge")
            assert (await reported.idle()).colour is Colour.GREEN

    asyncio.run(story())


def test_a_new_change_interrupts_what_it_makes_stale(tmp_path: Path) -> None:
    slow = "import time\n\n\ndef test_slow():\n    print('slow')\n    time.sleep({})\n"
    repo = small(tmp_path, **{"tests/test_slow.py": slow.format(0)})

    async def story() -> None:
        async with watched(repo) as (_, reported):
            await reported.idle()
            (repo / "tests" / "test_slow.py").write_text(slow.format(3600))
            await reported.until(lambda state: state.stage in (WatchStage.AFFECTED, WatchStage.EVERYTHING))
            (repo / "tests" / "test_slow.py").write_text(slow.format(0))
            state = await reported.idle()
            assert state.colour is Colour.GREEN
            assert state.totals.tests == 4

    asyncio.run(story())


def test_the_developers_tree_is_only_looked_at(tmp_path: Path) -> None:
    writes = "from pathlib import Path\n\n\ndef test_writes():\n    Path('left.txt').write_text('x')\n"
    spoils = (
        "import shutil\nfrom pathlib import Path\n\n\ndef test_spoils():\n    shutil.rmtree('data')\n"
        "    Path('words.txt').write_text('one two\\nthree')\n"
    )
    odd = {"tests/test_writes.py": writes, "tests/test_zz_spoils.py": spoils, "data/a/b.txt": "b\n"}
    repo = small(tmp_path, **odd)
    before = {path: path.stat().st_mtime_ns for path in repo.rglob("*") if ".git" not in path.parts}

    async def story() -> None:
        async with watched(repo) as (watch, reported):
            assert (await reported.idle()).colour is Colour.GREEN
            mirror = watch.mirror.path
            assert not (mirror / "left.txt").exists()
            assert (mirror / "words.txt").read_text() == "one two\n", "the next run must not see what this one did"
            assert (mirror / "data" / "a" / "b.txt").read_text() == "b\n"

    asyncio.run(story())
    after = {path: path.stat().st_mtime_ns for path in repo.rglob("*") if not {".git", ".ratchet"} & set(path.parts)}
    assert {**before, repo: 0} == {**after, repo: 0}
    assert git("status", "--porcelain", cwd=repo) == ""
    assert "ratchet/" not in git("branch", "--list", "--all", cwd=repo)


def test_a_branch_switch_is_followed(tmp_path: Path) -> None:
    repo = small(tmp_path)
    git("switch", "-q", "-c", "other", cwd=repo)
    edit(repo / "shapes.py", "a * b", "a - b")
    (repo / "more").mkdir()
    for number in range(1_000):
        (repo / "more" / f"file{number}.txt").write_text(str(number))
    git("add", "-A", cwd=repo)
    git("commit", "-q", "-m", "other", cwd=repo)
    git("switch", "-q", "main", cwd=repo)

    async def story() -> None:
        async with watched(repo) as (watch, reported):
            assert (await reported.idle()).colour is Colour.GREEN
            git("switch", "-q", "other", cwd=repo)
            await reported.until(lambda state: is_final(state) and state.colour is Colour.RED)
            assert len(list((watch.mirror.path / "more").iterdir())) == 1_000
            git("switch", "-q", "main", cwd=repo)
            await reported.until(lambda state: is_final(state) and state.colour is Colour.GREEN)
            assert not list((watch.mirror.path / "more").glob("*"))

    asyncio.run(story())


def test_a_rebase_that_stops_is_shown_and_survived(tmp_path: Path) -> None:
    repo = small(tmp_path)
    git("switch", "-q", "-c", "other", cwd=repo)
    edit(repo / "words.txt", "one two", "one two three")
    git("commit", "-q", "-a", "-m", "other", cwd=repo)
    git("switch", "-q", "main", cwd=repo)
    edit(repo / "words.txt", "one two", "one two four")
    git("commit", "-q", "-a", "-m", "ours", cwd=repo)

    async def story() -> None:
        async with watched(repo) as (_, reported):
            await reported.idle()
            with pytest.raises(Exception, match="rebase"):
                git("rebase", "-q", "other", cwd=repo)
            await reported.until(lambda state: "a rebase" in state.note)
            git("rebase", "--abort", cwd=repo)
            edit(repo / "words.txt", "one two four", "one two")
            await reported.until(lambda state: is_final(state) and state.colour is Colour.GREEN)

    asyncio.run(story())


@pytest.mark.parametrize("follows", [MirrorSource.STAGE, MirrorSource.COMMIT])
def test_a_stage_or_a_commit_counts_when_that_is_asked_for(tmp_path: Path, follows: MirrorSource) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo, WatchOptions(follows=follows)) as (watch, reported):
            assert (await reported.idle()).colour is Colour.GREEN
            edit(repo / "shapes.py", "a * b", "a + b")
            git("add", "shapes.py", cwd=repo)
            (repo / "words.txt").write_text("only saved\n")
            if follows is MirrorSource.COMMIT:
                git("commit", "-q", "-m", "sum", cwd=repo)
            state = await reported.idle()
            assert [test.id for test in state.failing] == ["tests/test_area.py::test_area"]
            assert (watch.mirror.path / "words.txt").read_text() == "one two\n"

    asyncio.run(story())


def test_a_manual_watch_runs_when_it_is_asked_to(tmp_path: Path) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo, WatchOptions(follows=MirrorSource.MANUAL)) as (watch, reported):
            await reported.idle()
            edit(repo / "shapes.py", "a * b", "a + b")
            watch.trigger()
            assert (await reported.idle()).colour is Colour.RED

    asyncio.run(story())


def test_all_tests_or_the_failed_ones_run_without_a_change(tmp_path: Path) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo) as (watch, told):
            assert (await told.idle()).colour is Colour.GREEN
            watch.trigger(RunScope.ALL)
            state = await told.until(lambda state: state.stage is WatchStage.EVERYTHING)
            assert (await told.idle()).runs == 2 and state.chosen == 0
            edit(repo / "shapes.py", "a * b", "a + b")
            assert (await told.idle()).colour is Colour.RED
            watch.trigger(RunScope.FAILED)
            state = await told.until(lambda state: state.stage is WatchStage.AFFECTED)
            assert state.chosen == 1
            state = await told.idle()
            assert (state.colour, state.runs) == (Colour.RED, 3), "what failed still does: the others need not run"

    asyncio.run(story())


def test_a_watch_that_is_stopped_ends(tmp_path: Path) -> None:
    async def story() -> None:
        suite = Suite(repo := small(tmp_path), config.load(repo, environ={}).config)
        watch = TestWatcher(suite, WatchOptions(), lambda _state: None)
        watch.stop()
        async with asyncio.timeout(PATIENCE_S):
            await watch.run()

    asyncio.run(story())


def test_a_test_that_hangs_forks_and_ignores_signals_is_ended_and_named(tmp_path: Path) -> None:
    bad = (
        "import os, signal, time\n\n\ndef test_bad():\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    if os.fork() == 0:\n        os.setsid()\n        time.sleep(3600)\n    time.sleep(3600)\n"
    )
    repo = small(tmp_path, **{"tests/test_bad.py": bad})

    async def story() -> None:
        async with watched(repo, None, "test.timeout_s=4") as (_, reported):
            state = await reported.idle()
            assert state.colour is Colour.RED
            assert [test.id for test in state.failing] == ["tests/test_bad.py::test_bad"]
            assert state.failing[0].status is TestStatus.ERROR
            (repo / "tests" / "test_bad.py").unlink()
            assert (await reported.idle()).colour is Colour.GREEN

    asyncio.run(story())


def test_a_test_that_kills_its_interpreter_is_red_and_the_next_run_is_fine(tmp_path: Path) -> None:
    bad = "import os\n\n\ndef test_bad():\n    os.kill(os.getppid(), 9)\n    os.kill(os.getpid(), 9)\n"
    repo = small(tmp_path, **{"tests/test_bad.py": bad})

    async def story() -> None:
        async with watched(repo) as (_, reported):
            assert (await reported.idle()).colour is Colour.RED
            (repo / "tests" / "test_bad.py").unlink()
            assert (await reported.idle()).colour is Colour.GREEN

    asyncio.run(story())


def test_when_the_tree_is_deleted_the_watch_says_so_and_ends(tmp_path: Path) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo) as (_, reported):
            await reported.idle()
            shutil.rmtree(repo)
            await reported.until(lambda state: state.stage is WatchStage.GONE)

    asyncio.run(story())
    assert not list((tmp_path / "state" / "ratchet" / "workspaces").glob("watch-*"))


def test_without_inotify_the_tree_is_looked_at_every_second(tmp_path: Path) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo, WatchOptions(polling=True)) as (_, reported):
            await reported.idle()
            edit(repo / "shapes.py", "a * b", "a + b")
            assert (await reported.idle()).colour is Colour.RED

    asyncio.run(story())


def test_a_change_of_colour_runs_the_command_and_nothing_else_does(tmp_path: Path) -> None:
    repo, received = small(tmp_path), tmp_path / "heard"

    async def story() -> None:
        wishes = WatchOptions(notify=f'echo "$RATCHET_COLOUR $RATCHET_FAILING" >> {received}')
        async with watched(repo, wishes) as (_, reported):
            await reported.idle()
            for old, new in (("a * b", "a + b"), ("a + b\n\n\ndef edge", "a - b\n\n\ndef edge"), ("a - b", "a * b")):
                edit(repo / "shapes.py", old, new)
                await reported.idle()

    asyncio.run(story())
    assert received.read_text() == "red 1\ngreen 0\n"


def test_another_process_can_follow_the_states(tmp_path: Path) -> None:
    repo = small(tmp_path)

    async def story() -> None:
        async with watched(repo) as (_, reported):
            final = await reported.idle()
            async for state in states(repo):
                assert state == final == read_state(repo)
                break

    asyncio.run(story())
    assert oct((repo / ".ratchet" / FILE).stat().st_mode & 0o777) == "0o600"


def test_test_records_are_kept_and_a_test_run_names_flaky_tests(tmp_path: Path) -> None:
    flaky = (
        "import os\n\n\ndef test_flaky():\n    there = os.path.exists('node_modules')\n"
        "    os.makedirs('node_modules', exist_ok=True)\n    assert there\n"
    )
    repo = small(tmp_path, **{"tests/test_flaky.py": flaky, ".gitignore": "node_modules\n"})

    async def story() -> Suite:
        async with watched(repo, WatchOptions(follows=MirrorSource.MANUAL)) as (watch, reported):
            assert (await reported.idle()).colour is Colour.RED
            watch.trigger()
            assert (await reported.idle()).colour is Colour.GREEN
            return watch.suite

    known = asyncio.run(story()).known()
    assert known["tests/test_area.py::test_area"].status == "passed"
    assert known["tests/test_area.py::test_area"].flips == 0
    assert known["tests/test_flaky.py::test_flaky"].flaky_rate > 0
    assert "flaky" in ratchet("test", cwd=repo).stdout


def test_once_says_the_colour_in_its_exit_code(tmp_path: Path) -> None:
    repo = small(tmp_path)
    done = ratchet("watch", "--once", cwd=repo)
    assert (done.returncode, done.stderr) == (0, "")
    assert "GREEN" in done.stdout and "3 passed" in done.stdout
    edit(repo / "shapes.py", "a * b", "a + b")
    red = ratchet("watch", "--once", "--json", cwd=repo)
    assert red.returncode == 1
    assert red.stdout.splitlines()[-1].startswith('{"colour":"red","stage":"idle"')


def test_without_a_repository_there_is_nothing_to_mirror(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_a():\n    pass\n")
    done = ratchet("watch", "--once", cwd=tmp_path, GIT_CEILING_DIRECTORIES=str(tmp_path.parent))
    assert done.returncode == 2
    assert "git init" in done.stderr


def test_a_project_without_its_test_tool_is_answered_with_one_sentence_and_the_set_up_command(tmp_path: Path) -> None:
    repo = small(tmp_path)
    (repo / ".gitignore").write_text(".venv/\n")
    venv.create(repo / ".venv", symlinks=True, with_pip=False)

    async def story() -> None:
        async with watched(repo) as (_, reported):
            note = (await reported.idle()).note
            assert note.startswith("No module named pytest; install what is missing, or set up the project first: ")
            assert ".venv/bin/python -m pip install" in note and "\n" not in note

    asyncio.run(story())
