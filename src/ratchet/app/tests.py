"""The use case of `ratchet test`: detects and runs the tests of a folder and compares them with the last run."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet import config
from ratchet.checks.detect.project import Project
from ratchet.checks.detect.targets import detect, excluded_folders
from ratchet.checks.protocol import Confidence, Target
from ratchet.checks.run import test_history
from ratchet.checks.run.environment import full_environment
from ratchet.checks.run.executor import RunCommand, TestRun, run_supervised
from ratchet.checks.run.missing_tests import (
    add_missing_files,
    check_selected,
    files_with_results,
    missing_files,
    note_extra_tests,
)
from ratchet.checks.run.path_redirect import SourceTree
from ratchet.checks.select.by_id import select_by_id
from ratchet.checks.select.runner_options import with_options
from ratchet.core.compare import Delta, compare
from ratchet.core.flaky import OutcomeHistory, merge_rerun, record_outcomes
from ratchet.core.foreign_json import MALFORMED
from ratchet.core.report import RED, Report, ReportStatus, TestResult, count_totals, load_errors
from ratchet.core.roles import matches_glob
from ratchet.core.watch import TestRecord
from ratchet.errors import EnvironmentCannot, GitFailed, NoTests, UsageError
from ratchet.files import make_private_dir, require_own_settings
from ratchet.paths import isolated_copies
from ratchet.process.spawn import ProgramMissing
from ratchet.tree_files import temporary_folder
from ratchet.workspace.git.command import git_read_only, git_text
from ratchet.workspace.git.repository import check_state_dir
from ratchet.workspace.git.uncommitted import copy_uncommitted, ignored_files, untracked

T = TypeVar("T")
# Runs with these statuses list every failure.
_COMPLETE = (ReportStatus.PASSED, ReportStatus.FAILED)
# Incomplete runs: not used as the last run for comparison.
_INCOMPLETE = (ReportStatus.ERROR, ReportStatus.INTERRUPTED)
_STOPPED_EARLY = (ReportStatus.TIMEOUT, ReportStatus.CRASHED, ReportStatus.UNKNOWN)
NO_TESTS_HINT = 'set [test] command = "…" in ratchet.toml, or use --set test.command=…'
_HUGE_BYTES = 16 << 20
_SHARED = ("node_modules", ".venv", "venv", "vendor", "deps")


class TestSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests to run, and where. The default is all tests, in place.

    `keyword`, `stop` at the first failure and `args` are options of the runner itself.
    """

    ids: list[str] = []
    failed: bool = False
    affected: bool = False
    since: str = "HEAD"
    isolated: bool = False
    ref: str = ""
    rerun_failures: int = 0
    keyword: str = ""
    stop: bool = False
    args: list[str] = []

    @property
    def has_options(self) -> bool:
        return bool(self.keyword or self.stop or self.args)


class TestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A test run with its `delta` to the last run, `known` failures of the baseline and `flaky` test ids.

    `idle`: no tests were selected, since none failed last time or none are affected by the changes.
    """

    report: Report
    targets: list[Target]
    idle: bool = False
    delta: Delta | None = None
    known: list[str] = []
    flaky: list[str] = []
    changed: dict[str, list[tuple[int, int]]] = {}
    log: str = ""

    @property
    def new_red(self) -> list[TestResult]:
        return [test for test in self.report.tests if test.status in RED and test.id not in self.known]


class Suite:
    """The tests of one folder. State is kept in the repository's `.ratchet`, without git in the user's state folder."""

    repo: Path | None

    def __init__(self, folder: Path, settings: config.Config) -> None:
        self.config = settings
        self._forgotten = ""
        self.repo = self._find_repository(folder)
        self.folder = folder
        if self.repo and self.repo != folder and not self.targets():
            self.folder = self.repo
            del self._targets

    def _find_repository(self, folder: Path) -> Path | None:
        return _repository(folder)

    def targets(self) -> list[Target]:
        if not hasattr(self, "_targets"):
            tests = self.config.test
            self._targets = detect(
                self.folder,
                command=tests.command,
                tests=tests.paths or None,
                runner_name=tests.runner,
                report=tests.report,
            )
        return self._targets

    def redetect(self) -> None:
        """Detect targets again after a manifest changed; keep the old ones if none are found (half-written file)."""
        before = self.targets()
        del self._targets
        self._targets = self.targets() or before

    @property
    def inside(self) -> str:
        """The folder relative to its repository."""
        return self.folder.relative_to(self.repo).as_posix() if self.repo else "."

    @property
    def state(self) -> Path:
        return test_history.history_dir(self.folder, self.repo)

    # --- running ---------------------------------------------------------------------------------------------

    async def run(
        self, choice: TestSelection, *, timeout_s: float | None = None, perform: RunCommand = run_supervised
    ) -> TestOutcome:
        targets = self.targets()
        if not targets:
            others = [f"; {path} is skipped ({why})" for path, why in excluded_folders(self.folder).items()]
            raise NoTests(
                f"no tests found in {self.folder}{''.join(others[:1])}",
                hint=NO_TESTS_HINT,
            )
        self._check_project(targets)
        last = self.last() if choice.ids or choice.failed else None
        only = self._selected_tests(choice, targets, last)
        log = test_history.new_log(self.state)
        if choice.has_options:
            targets = with_options(targets, keyword=choice.keyword, stop=choice.stop, args=choice.args)
        tests = TestRun(
            targets=targets,
            timeout_s=timeout_s or self.config.test.timeout_s,
            silence_s=self.config.test.silence_s,
            env=self.environment(),
            only=only,
            origin=SourceTree(root=self.repo or self.folder, inside=self.inside),
            run_command=perform,
        )
        if not only and (why := _why_nothing_to_run(choice, last)):
            report = Report(runner="none", status=ReportStatus.NO_TESTS, notes=[why])
            return TestOutcome(report=report, targets=targets, idle=True)
        try:
            with self._test_folder(choice, targets) as folder:
                report = await tests.run(folder, log=log)
                report = await self._rerun(report, tests, folder, log, choice.rerun_failures)
        finally:
            log = test_history.publish_log(log)
        if choice.ids or choice.failed:
            # A failed set-up hook is not a test and is not reported when it passes.
            asked = choice.ids or [test.id for test in _failures(last) if test.phase == "call"]
            known = [test.id for test in last.tests] if last else []
            report = (
                note_extra_tests(check_selected(report, asked, known), asked) if only else _all_were_run(report, last)
            )
        if self.repo and (choice.isolated or choice.ref):
            report = self._without_ignored(report)
        if choice.ref:
            return self._outcome_of_revision(report, choice.ref, log)
        asked = choice.ids or ([test.id for test in _failures(last)] if choice.failed else [])
        whole = not only and not choice.has_options and report.status not in _INCOMPLETE
        return self.compare_and_store(report, whole=whole, log=log, asked=asked)

    def _check_project(self, targets: list[Target]) -> None:
        """Refuse a folder that is no project itself, such as a home folder: it would run what lies below it."""
        tests = self.config.test
        if self.repo or tests.command or tests.runner or tests.paths or (self.folder / config.FILE).exists():
            return
        found = sorted({target.root for target in targets if target.root != "."})
        home = Path(os.environ.get("HOME") or "/").resolve()
        own = any(target.root == "." and target.strength > Confidence.PATTERN for target in targets)
        if self.folder in (home, *home.parents) and not own:
            raise UsageError(f"{self.folder} is not a project", hint=f"ratchet test -C {found[0] if found else 'DIR'}")
        apart = [name for name in found if (self.folder / name / ".git").exists()]
        if len(apart) > 1 and not _has_manifest(self.folder):
            raise UsageError(
                f"{self.folder} is not a project; {len(apart)} repositories below it have tests: "
                f"{', '.join(apart[:3])}{' and others' if len(apart) > 3 else ''}",
                hint=f"ratchet test -C {apart[0]}; to test them as one, create a {config.FILE} here",
            )

    def environment(self) -> dict[str, str]:
        """Return the environment for the test processes."""
        return full_environment()

    def _selected_tests(
        self, choice: TestSelection, targets: list[Target], last: Report | None
    ) -> dict[str, list[TestResult]]:
        """Return the tests to run by target; `{}` selects everything."""
        if choice.ids:
            return select_by_id(choice.ids, targets, last, self.folder)
        if choice.failed:
            # A file that did not load has no test ids.
            return select_by_id([test.id for test in _failures(last)], targets, last, self.folder)
        if choice.affected:
            from ratchet.checks.select.affected import affected  # noqa: PLC0415 — rarely needed

            return affected(self.folder, targets, self._changed(choice.since))
        return {}

    def _changed(self, since: str) -> list[str]:
        if not self.repo:
            raise UsageError("--affected needs a git repository", hint=_no_repository(self.folder))
        try:
            out = git_read_only("diff", "--name-only", "-z", "--relative", since, "--", cwd=self.folder)
        except GitFailed as error:
            raise UsageError(f"no such revision: {since!r}", hint="git log --oneline lists commits") from error
        known = {os.fsdecode(name) for name in out.split(b"\0") if name}
        return sorted(known.union(untracked(self.folder)) - self._exported(self.folder))

    def changes(self) -> dict[str, list[tuple[int, int]]]:
        """Return the changed lines by file: uncommitted changes, or those of the last commit if there are none."""
        if not self.repo:
            return {}
        from ratchet.core.packet import changed_ranges  # noqa: PLC0415 — needed only after a failure

        for since in ("HEAD", "HEAD~1"):
            try:
                out = git_read_only(
                    "diff",
                    "--no-ext-diff",
                    "--no-textconv",
                    "--no-color",
                    "-U0",
                    "--relative",
                    since,
                    "--",
                    cwd=self.folder,
                )
            except EnvironmentCannot:
                return {}
            found = changed_ranges(out.decode(errors="replace")) | {name: [] for name in self._new_code()}
            if theirs := {name: found[name] for name in found.keys() - self._exported(self.folder)}:
                return theirs
        return {}

    def _new_code(self) -> list[str]:
        """Return untracked files that match the globs of tests or sources; other files may be reports or output."""
        globs = [glob for target in self.targets() for glob in (*target.tests, *target.sources)]
        return [name for name in untracked(self.folder) if any(matches_glob(name, glob) for glob in globs)]

    def note_export(self, path: Path) -> None:
        """Remember a report file written into the repository, so that it does not count as a change."""
        if self.repo and path.resolve().is_relative_to(self.repo):
            known = self._read("exports.json", dict[str, str]) or {}
            name = path.resolve().relative_to(self.repo).as_posix()
            known = {name: _fingerprint(path).hex()} | {key: known[key] for key in known if key != name}
            self._remember("exports.json", msgspec.json.encode(dict(list(known.items())[:_EXPORTS_MAX])))

    def _exported(self, folder: Path) -> set[str]:
        """Return report files below a folder that are unchanged since we wrote them, relative to it."""
        known = self._read("exports.json", dict[str, str]) or {}
        paths = {self.repo / name: mark for name, mark in known.items()} if self.repo else {}
        return {
            path.relative_to(folder).as_posix()
            for path, mark in paths.items()
            if path.is_relative_to(folder) and _fingerprint(path).hex() == mark
        }

    async def _rerun(self, report: Report, tests: TestRun, folder: Path, log: Path, times: int) -> Report:
        """Rerun failures up to `times` times; a test that then passes is marked flaky."""
        for _ in range(times):
            red = [test for test in report.tests if test.status in RED and test.attempts <= times]
            if not red or report.status is not ReportStatus.FAILED:
                break
            only = select_by_id([test.id for test in red], tests.targets, report, folder)
            again = await msgspec.structs.replace(tests, only=only).run(folder, log=log)
            report = merge_rerun(report, again)
            if again.status is ReportStatus.INTERRUPTED:
                return msgspec.structs.replace(report, status=again.status, notes=[*report.notes, *again.notes])
        return report

    # --- isolation -----------------------------------------------------------------------------------------------

    @contextmanager
    def _test_folder(self, choice: TestSelection, targets: list[Target]) -> Iterator[Path]:
        if not choice.isolated and not choice.ref:
            yield self.folder
            return
        if not self.repo:
            with self._copy() as folder:
                yield folder
            return
        try:
            commit = git_text(
                "rev-parse", "--verify", "--end-of-options", f"{choice.ref or 'HEAD'}^{{commit}}", cwd=self.repo
            )
        except GitFailed as error:
            raise UsageError(
                f"no such revision: {choice.ref or 'HEAD'!r}", hint="git log --oneline lists commits"
            ) from error
        with self._workspace(commit) as folder:
            if not choice.ref:
                copy_uncommitted(self.repo, folder)
            inside = folder / self.folder.relative_to(self.repo)
            borrow_dependencies(self.folder, inside, targets)
            yield inside

    def _without_ignored(self, report: Report) -> Report:
        """Note ignored files that the copy lacks: a frequent cause of failures in isolated runs only."""
        assert self.repo
        carried = self.config.workspace.carry
        names = [name for name in ignored_files(self.repo) if name not in carried] if _is_red(report) else []
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        note = f"the copy lacks files that git ignores: {', '.join(names[:3])}{more}; add them to workspace.carry"
        return msgspec.structs.replace(report, notes=[*report.notes, note]) if names else report

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        above = make_private_dir(isolated_copies())
        require_own_settings(above)
        with temporary_folder("ratchet-isolated-", within=above) as place:
            folder = Path(place) / self.folder.name
            try:
                shutil.copytree(self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".ratchet"))
            except shutil.Error as error:
                (path, _, why), *_ = error.args[0]
                raise EnvironmentCannot(f"cannot copy {path}: {why}", hint="run without --isolated") from error
            yield folder

    @contextmanager
    def _workspace(self, commit: str) -> Iterator[Path]:
        from ratchet.workspace.scratch import workspace_at  # noqa: PLC0415 — imports workspaces

        assert self.repo
        with workspace_at(commit, self.repo, self.config) as made:
            yield made.path

    # --- history -----------------------------------------------------------------------------------------

    def compare_and_store(
        self, report: Report, *, whole: bool, log: Path, tree: str = "", asked: Collection[str] = ()
    ) -> TestOutcome:
        """Compare a run with the last one and store it. `tree` identifies the content, `asked` the selected tests."""
        last = self.last()
        if whole:
            report = self._report_missing_files(report)
        delta = _delta(last, report) if last and whole else None
        outcome = TestOutcome(
            report=report,
            targets=self.targets(),
            delta=delta,
            known=self._renamed(delta.renamed if delta else []),
            flaky=self._flaky(report, tree),
            changed=self.changes() if any(test.status in RED for test in report.tests) else {},
            log=str(log),
        )
        if whole or last:
            kept = _reached(last, report) if whole else _updated(last or report, report, asked)
            self._remember("last.json", msgspec.json.encode(kept))
        return self._with_forgotten(outcome)

    def _renamed(self, renamed: list[tuple[str, str]]) -> list[str]:
        """Return the baseline with renamed tests updated."""
        names, known = dict(renamed), self.baseline()
        if not names.keys() & set(known):
            return known
        known = sorted(names.get(name, name) for name in known)
        self._remember("baseline.json", msgspec.json.encode(known))
        return known

    def _remember(self, name: str, content: bytes) -> None:
        """Store a file for the next run; on failure only note it, so that the results are still printed."""
        try:
            test_history.write_atomically(self.state / name, content)
        except OSError as error:
            self._forgotten = error.strerror or str(error)

    def _with_forgotten(self, outcome: TestOutcome) -> TestOutcome:
        if not self._forgotten:
            return outcome
        note = f"the results could not be stored for the next run: {self._forgotten}"
        report = msgspec.structs.replace(outcome.report, notes=[*outcome.report.notes, note])
        return msgspec.structs.replace(outcome, report=report)

    def _outcome_of_revision(self, report: Report, ref: str, log: Path) -> TestOutcome:
        """Return the outcome of another revision: not stored and not compared."""
        flaky = self._flaky(report, self._tree_of(ref)) if self.repo else []
        return TestOutcome(report=report, targets=self.targets(), known=self.baseline(), flaky=flaky, log=str(log))

    def _tree_of(self, ref: str) -> str:
        """Return the tree id of a revision, equal to `_tree` for a clean checkout."""
        commit = git_text("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}", cwd=self.repo)
        return hashlib.sha256(commit.encode()).hexdigest()[:16]

    def _report_missing_files(self, report: Report) -> Report:
        """Report test files that had results before, still contain tests, and now have none."""
        project, known = Project(self.folder), self._read("inventory.json", list[str]) or []
        if not (reported := files_with_results(report, project)):
            return report
        lost = missing_files(report, project, known)
        self._keep_inventory(reported | set(lost))
        return add_missing_files(report, lost)

    def _keep_inventory(self, files: set[str]) -> None:
        self._remember("inventory.json", msgspec.json.encode(sorted(files)))

    def _flaky(self, report: Report, tree: str) -> list[str]:
        """Return ids of tests with different results on the same tree."""
        history = self._read("history.json", OutcomeHistory) or OutcomeHistory()
        red = any(test.status in RED for test in report.tests)
        if red or any(test.id in history.outcomes for test in report.tests):
            history = record_outcomes(history, report, tree=tree or self._tree())
            self._remember("history.json", msgspec.json.encode(history))
        seen = {test.id for test in report.tests}
        again = {test.id for test in report.tests if test.attempts > 1 and test.status not in RED}
        flipped = {name for name, known in self.known().items() if known.flips}
        return sorted(again | ((set(history.flaky()) | flipped) & seen))

    def _tree(self) -> str:
        """Return an id of the tested content; a random one without git."""
        if not self.repo:
            return secrets.token_hex(8)
        ours = self._exported(self.repo)
        others = [f":(top,exclude,literal){name}" for name in sorted(ours)]
        try:
            seen = hashlib.sha256(git_text("rev-parse", "HEAD", cwd=self.repo).encode())
            seen.update(
                git_read_only(
                    "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD", "--", ":/", *others, cwd=self.repo
                )
            )
            names = untracked(self.repo)
        except EnvironmentCannot:
            return secrets.token_hex(8)
        for name in names:
            seen.update(os.fsencode(name) + b"\0" + _fingerprint(self.repo / name) if name not in ours else b"")
        return seen.hexdigest()[:16]

    def last(self) -> Report | None:
        return self._read("last.json", Report)

    def baseline(self) -> list[str]:
        return self._read("baseline.json", list[str]) or []

    def known(self) -> dict[str, TestRecord]:
        """Return last status, duration and flakiness by test, as stored by `ratchet watch`."""
        return self._read("known.json", dict[str, TestRecord]) or {}

    def keep_known(self, known: dict[str, TestRecord]) -> None:
        test_history.write_atomically(self.state / "known.json", msgspec.json.encode(known))

    def save_baseline(self, report: Report) -> list[str]:
        """Save the failures as known: shown, but not failing the run. Files without results are no longer missed."""
        red = sorted(test.id for test in report.tests if test.status in RED)
        test_history.write_atomically(self.state / "baseline.json", msgspec.json.encode(red))
        self._keep_inventory(files_with_results(report, Project(self.folder)))
        return red

    def _read(self, name: str, kind: type[T]) -> T | None:
        """Read a stored file; None if it is missing or from an incompatible version."""
        try:
            return msgspec.json.decode((self.state / name).read_bytes(), type=kind)
        except (OSError, *MALFORMED):
            return None


_EXPORTS_MAX = 50


def _fingerprint(path: Path) -> bytes:
    """Return a hash of the file's content, or size and mtime for a huge file."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return b""
        if found.st_size > _HUGE_BYTES:
            return f"{found.st_size} {found.st_mtime_ns}".encode()
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def _repository(folder: Path) -> Path | None:
    try:
        root = Path(git_text("rev-parse", "--show-toplevel", "HEAD^{commit}", cwd=folder).rpartition("\n")[0])
    except (GitFailed, ProgramMissing):
        return None
    check_state_dir(root)
    return root


def _has_manifest(folder: Path) -> bool:
    """Whether the folder is the top of a project: it has a manifest, or git's folder."""
    from ratchet.workspace.base_cache import DECIDING  # noqa: PLC0415 — needed only without a repository

    return any((folder / name).exists() for name in (*DECIDING, ".git", "Makefile"))


def _no_repository(folder: Path) -> str:
    """Return a hint; git rejects repositories owned by another user, which is common in containers."""
    owned = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if owned and owned.stat().st_uid != os.getuid():
        return f"it is owned by another user; if you trust it: git config --global --add safe.directory {owned}"
    return "run all tests: ratchet test"


def _why_nothing_to_run(choice: TestSelection, last: Report | None) -> str:
    """Return why an empty selection means that nothing runs; empty if it means all tests.

    A failure outside of tests, or one of an unknown run, can be found only by running all tests.
    """
    if choice.ids:
        return ""
    if choice.failed:
        return "no tests failed last time" if last and not load_errors(last) and last.status in _COMPLETE else ""
    return "no tests are affected by your changes" if choice.affected else ""


def _is_red(report: Report) -> bool:
    return bool(load_errors(report)) or any(test.status in RED for test in report.tests)


def _failures(last: Report | None) -> list[TestResult]:
    return [test for test in last.tests if test.status in RED] if last and not load_errors(last) else []


def _updated(last: Report, report: Report, asked: Collection[str]) -> Report:
    """Return the last full report updated with the newer results, for --failed."""
    newer = {test.id: test for test in report.tests}
    mended = {test.id for test in last.tests if test.id in asked and _hook_passes_now(test, report)}
    kept = {test.id: newer.get(test.id, test) for test in last.tests if test.id not in mended}
    tests = list((kept | newer).values())
    status = ReportStatus.FAILED if any(test.status in RED for test in tests) else ReportStatus.PASSED
    status = status if last.status in _COMPLETE and not load_errors(last) else last.status
    return msgspec.structs.replace(last, tests=tests, totals=count_totals(tests), status=status)


def _delta(last: Report, report: Report) -> Delta:
    """Compare with the last run; tests that were not reached do not count as removed."""
    delta, unreached = compare(last, report), {test.id for test in _unreached(last, report)}
    return msgspec.structs.replace(delta, missing=[name for name in delta.missing if name not in unreached])


def _reached(last: Report | None, report: Report) -> Report:
    """Return the full run to store, with the last results of tests it did not reach."""
    if not last or not (unreached := _unreached(last, report)):
        return report
    tests = [*report.tests, *unreached]
    return msgspec.structs.replace(report, tests=tests, totals=count_totals(tests))


def _unreached(last: Report, report: Report) -> list[TestResult]:
    """Return known tests after the point where the run stopped, or in files that do not load."""
    reported, files = {test.id for test in report.tests}, {error.file for error in load_errors(report)}
    cut = report.status in _STOPPED_EARLY
    return [test for test in last.tests if test.id not in reported and (cut or test.file in files)]


def _all_were_run(report: Report, last: Report | None) -> Report:
    """Note why --failed ran all tests."""
    why = "a file did not load in the last run" if last and load_errors(last) else "the last run is incomplete"
    note = f"ran all tests: {why if last else 'there is no earlier run'}"
    return msgspec.structs.replace(report, notes=[*report.notes, note])


def _hook_passes_now(test: TestResult, report: Report) -> bool:
    """Return whether a failed hook now passes: hooks are reported only on failure, so its tests must have run."""
    reported = any(newer.file == test.file and newer.suite[: len(test.suite)] == test.suite for newer in report.tests)
    return test.phase != "call" and reported and test.id not in {newer.id for newer in report.tests}


def borrow_dependencies(source: Path, workspace: Path, targets: list[Target]) -> None:
    """Link installed dependencies, which are not in the commit, from the source into the workspace."""
    for root in {target.root for target in targets} | {"."}:
        for name in _SHARED:
            here, there = source / root / name, workspace / root / name
            if here.is_dir() and not there.exists() and there.parent.is_dir():
                there.symlink_to(here, target_is_directory=True)
