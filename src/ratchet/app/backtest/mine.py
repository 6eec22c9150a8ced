"""Mines tasks: commits whose tests are red at the parent and green at the commit, found by running them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from ratchet.app.backtest.bench import Bench, Prepare, lay_files
from ratchet.core.backtest.task import (
    BY_SETUP,
    LeftOut,
    LeftOutReason,
    Mined,
    MinedTask,
    TestEffect,
    find_effect,
    green_tests,
    why_no_setup,
)
from ratchet.core.backtest.task_spec import Issue, is_vague, linked_issues, write_spec
from ratchet.core.cheats.config_files import decides_how_tests_run
from ratchet.core.diffs import read_diff
from ratchet.core.report import Report
from ratchet.core.roles import PathRules, matches_glob
from ratchet.engine.blocking import run_blocking
from ratchet.engine.run_setup import union
from ratchet.errors import UsageError
from ratchet.workspace.git import repository
from ratchet.workspace.git.repository import Repository
from ratchet.workspace.git.task_repository import Commit, content_at, last_commits, origin_name, patch_between

OnMined = Callable[[Mined], None]


async def mine(bench: Bench, *, last: int, issues: Sequence[Issue] = (), on_mined: OnMined) -> list[Mined]:
    """Return what each of the last commits is: a task, or left out. Results are kept and found again."""
    commits = await run_blocking(last_commits, bench.repo.root, last)
    return [await _kept(bench, commit, issues, on_mined) for commit in commits]


def mined_key(bench: Bench, commit: Commit, linked: Sequence[Issue]) -> str:
    """Name the result by all that it depends on: a runner may name tests in another way, and run other revisions."""
    return f"{commit.id[:12]}-{bench.digest(bench.config.test, bench.config.workspace.setup, bench.tools, linked)}"


async def _kept(bench: Bench, commit: Commit, issues: Sequence[Issue], on_mined: OnMined) -> Mined:
    linked = linked_issues(commit.message, issues)
    key = mined_key(bench, commit, linked)
    found = bench.read("tasks", key, Mined)  # type: ignore[arg-type]
    if found is None:
        found = await _Miner(bench, commit, linked).mine()
        if not (isinstance(found, LeftOut) and found.reason in BY_SETUP):
            bench.write("tasks", key, found)
    on_mined(found)
    return found


class _Miner:
    """Examines one commit."""

    def __init__(self, bench: Bench, commit: Commit, issues: Sequence[Issue]) -> None:
        self.bench, self.commit, self.issues = bench, commit, issues
        self.root = bench.repo.root

    async def mine(self) -> Mined:
        if len(self.commit.parents) != 1:
            return self._left_out(LeftOutReason.MERGE)
        changed = await run_blocking(repository.changed_paths, self.root, self.commit.id)
        tests, source = self._split(changed)
        if not tests:
            return self._left_out(LeftOutReason.NO_TESTS)
        if not source:
            return self._left_out(LeftOutReason.NO_SOURCE)
        spec = await run_blocking(self._spec, [*tests, *source])
        if is_vague(spec):
            return self._left_out(LeftOutReason.MESSAGE, spec.strip()[:80])
        opened = self.bench.temporary_repository
        with opened(self.commit.parents[0]) as parent, opened(self.commit.id) as child:
            runs = _CommitRuns(self.bench, parent, child, await run_blocking(self._files_of, tests))
            if not runs.targets:
                return self._left_out(LeftOutReason.SETUP, "no tests are found")
            effect = await runs.effect()
        if effect.reason:
            return self._left_out(effect.reason, effect.detail)
        return self._task(spec, tests, source, effect)

    def _split(self, changed: list[str]) -> tuple[list[str], list[str]]:
        """Return the tests and the source among the changed paths, by the targets of today's checkout."""
        targets = self.bench.targets(self.root)
        if not targets:
            raise UsageError(
                f"no test command found for {self.root}", hint='set one: --set test.command="python3 -m pytest"'
            )
        scope = PathRules(tests=tuple(union(target.tests for target in targets)))
        sources = union(target.sources for target in targets)
        tests = [path for path in changed if scope.is_test(path)]
        others = [path for path in changed if path not in tests and not decides_how_tests_run(path)]
        return tests, [path for path in others if any(matches_glob(path, glob) for glob in sources)]

    def _spec(self, paths: list[str]) -> str:
        patch = patch_between(self.root, self.commit.parents[0], self.commit.id, paths)
        rows = (row for file in read_diff(patch) for hunk in file.hunks for row in hunk.lines)
        added = [row[1:].removesuffix("\r") for row in rows if row.startswith("+")]
        return write_spec(self.commit.message, self.issues, added)

    def _task(self, spec: str, tests: list[str], source: list[str], effect: TestEffect) -> MinedTask:
        commit, base = self.commit.id, self.commit.parents[0]
        return MinedTask(
            id=f"{origin_name(self.root).replace('/', '__')}-{commit[:12]}",
            commit=commit,
            base_commit=base,
            title=spec.removeprefix("# ").partition("\n")[0],
            spec=spec,
            created_at=self.commit.created_at,
            test_paths=tests,
            source_paths=source,
            fail_to_pass=effect.fail_to_pass,
            pass_to_pass=effect.pass_to_pass,
        )

    def _files_of(self, paths: list[str]) -> dict[str, bytes | None]:
        return {path: content_at(self.root, self.commit.id, path) for path in paths}

    def _left_out(self, reason: LeftOutReason, detail: str = "") -> LeftOut:
        title = self.commit.message.strip().partition("\n")[0]
        return LeftOut(commit=self.commit.id, title=title, reason=reason, detail=detail)


class _CommitRuns:
    """Runs of a commit's tests: at its parent with the tests laid over it, and at the commit."""

    def __init__(self, bench: Bench, parent: Repository, child: Repository, files: Mapping[str, bytes | None]) -> None:
        self.bench, self.parent, self.child = bench, parent, child
        self.lay = partial(lay_files, files=files)
        self.targets = bench.targets(parent.root)

    async def effect(self) -> TestEffect:
        """Run both sides, twice if that shows an effect: a result that differs between two runs is no measure."""
        red = [await self._run(self.lay)]
        if not green_tests(red[0]) and (why := why_no_setup(await self._run())):
            return TestEffect(reason=LeftOutReason.SETUP, detail=why)
        after = [await self._run_child()]
        if find_effect(red, after).fail_to_pass:
            red, after = [*red, await self._run(self.lay)], [*after, await self._run_child()]
        return find_effect(red, after)

    async def _run(self, prepare: Prepare = lambda _folder: None) -> Report:
        return await self.bench.run_tests(self.parent.root, self.parent.head, self.targets, prepare=prepare)

    async def _run_child(self) -> Report:
        child = self.child
        return await self.bench.run_tests(child.root, child.head, self.bench.targets(child.root))


def read_issues(path: Path) -> list[Issue]:
    """Read a list of issues, as `gh issue list --state all --json number,title,body` prints it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Issue])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"cannot read issues from {path}: {error}",
            hint="gh issue list --state all --limit 1000 --json number,title,body > issues.json",
        ) from error
