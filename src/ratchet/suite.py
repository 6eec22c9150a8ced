"""The use case of `ratchet test`: a folder's tests, found, run here or apart from here, and compared with last time."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from ratchet import config, memory
from ratchet.checks import Target
from ratchet.checks.chosen import by_target
from ratchet.checks.detect import detect, left_out
from ratchet.checks.editable import Origin
from ratchet.checks.environment import whole_environment
from ratchet.checks.inventory import besides, heard, missing, unanswered, without
from ratchet.checks.project import Project
from ratchet.checks.run import Perform, TestRun, awaited
from ratchet.core.compare import Delta, compare
from ratchet.core.flaky import History, remember, settle
from ratchet.core.report import RED, Report, ReportStatus, TestResult, broken, totals_of
from ratchet.core.roles import matches
from ratchet.core.watching import Known
from ratchet.errors import EnvironmentCannot, GitFailed, NoTests, UsageError
from ratchet.process import ProgramMissing
from ratchet.workspace.git import look, text
from ratchet.workspace.uncommitted import ignored_files, lay_over, untracked

T = TypeVar("T")
# The report of a run that ended as one of these names everything that failed in it.
_TOLD = (ReportStatus.PASSED, ReportStatus.FAILED)
# Such a run says nothing of the tests it did not reach, and is not what the next one is compared with.
_NOT_WHOLE = (ReportStatus.ERROR, ReportStatus.INTERRUPTED)
_CUT = (ReportStatus.TIMEOUT, ReportStatus.CRASHED, ReportStatus.UNKNOWN)
SAY_HOW = 'say how to run them: [test] command = "…" in ratchet.toml, or --set test.command=…'
_HUGE_BYTES = 16 << 20
_SHARED = ("node_modules", ".venv", "venv", "vendor", "deps")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """Which tests, and where. Nothing chosen means all of them, here."""

    ids: list[str] = []
    failed: bool = False
    affected: bool = False
    since: str = "HEAD"
    isolated: bool = False
    ref: str = ""
    rerun_failures: int = 0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A run and what it means: `delta` against the last one, `known` failures of the baseline, `flaky` ids.

    `idle`: there was nothing to run, because nothing failed last time, or because the changes reach no test.
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
    """The tests of one folder. State is kept in the repository's `.ratchet`, without git in the user's own folder."""

    def __init__(self, folder: Path, settings: config.Config) -> None:
        self.config = settings
        self._forgotten = ""
        self.repo = _repository(folder)
        self.folder = folder
        if self.repo and self.repo != folder and not self.targets():
            self.folder = self.repo
            del self._targets

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

    def look_again(self) -> None:
        """A manifest changed: the targets may be others now. One that is half-written names none, and is ignored."""
        before = self.targets()
        del self._targets
        self._targets = self.targets() or before

    @property
    def inside(self) -> str:
        """Where in its repository the folder is."""
        return self.folder.relative_to(self.repo).as_posix() if self.repo else "."

    @property
    def state(self) -> Path:
        return memory.place_of(self.folder, self.repo)

    # --- running ---------------------------------------------------------------------------------------------

    async def run(self, choice: Choice, *, timeout_s: float | None = None, perform: Perform = awaited) -> Outcome:
        targets = self.targets()
        if not targets:
            others = [f"; {path} is left out ({why})" for path, why in left_out(self.folder).items()]
            raise NoTests(
                f"no tests were found in {self.folder}{''.join(others[:1])}",
                hint=SAY_HOW,
            )
        last = self.last() if choice.ids or choice.failed else None
        only = self._chosen(choice, targets, last)
        log = memory.own_log(self.state)
        tests = TestRun(
            targets=targets,
            timeout_s=timeout_s or self.config.test.timeout_s,
            silence_s=self.config.test.silence_s,
            env=self.environment(),
            only=only,
            origin=Origin(root=self.repo or self.folder, inside=self.inside),
            perform=perform,
        )
        if not only and (why := _idle(choice, last)):
            report = Report(runner="none", status=ReportStatus.NO_TESTS, notes=[why])
            return Outcome(report=report, targets=targets, idle=True)
        try:
            with self._place(choice, targets) as folder:
                report = await tests.run(folder, log=log)
                report = await self._rerun(report, tests, folder, log, choice.rerun_failures)
        finally:
            log = memory.keep_log(log)
        if choice.ids or choice.failed:
            # A hook that failed in set-up is no test, and says nothing where it passes.
            asked = choice.ids or [test.id for test in _red(last) if test.phase == "call"]
            known = [test.id for test in last.tests] if last else []
            report = besides(unanswered(report, asked, known), asked) if only else _all_were_run(report, last)
        if self.repo and (choice.isolated or choice.ref):
            report = self._without_ignored(report)
        if choice.ref:
            return self._elsewhere(report, choice.ref, log)
        asked = choice.ids or ([test.id for test in _red(last)] if choice.failed else [])
        return self.conclude(report, whole=not only and report.status not in _NOT_WHOLE, log=log, asked=asked)

    def environment(self) -> dict[str, str]:
        """What the tests' processes get of ours."""
        return whole_environment()

    def _chosen(self, choice: Choice, targets: list[Target], last: Report | None) -> dict[str, list[TestResult]]:
        """For each target the tests to run; empty for all of all."""
        if choice.ids:
            return by_target(choice.ids, targets, last, self.folder)
        if choice.failed:
            # A file that did not load has no test that could be named.
            return by_target([test.id for test in _red(last)], targets, last, self.folder)
        if choice.affected:
            from ratchet.checks.affected import affected  # noqa: PLC0415 — rarely asked for

            return affected(self.folder, targets, self._changed(choice.since))
        return {}

    def _changed(self, since: str) -> list[str]:
        if not self.repo:
            raise UsageError("--affected needs a git repository", hint=_no_repository(self.folder))
        try:
            out = look("diff", "--name-only", "-z", "--relative", since, "--", cwd=self.folder)
        except GitFailed as error:
            raise UsageError(f"there is no revision {since!r}", hint="git log names them") from error
        known = {os.fsdecode(name) for name in out.split(b"\0") if name}
        return sorted(known.union(untracked(self.folder)) - self._exported(self.folder))

    def changes(self) -> dict[str, list[tuple[int, int]]]:
        """The uncommitted changes, or the last commit when there are none: which lines of which file."""
        if not self.repo:
            return {}
        from ratchet.core.packet import changed_lines  # noqa: PLC0415 — only where something failed

        for since in ("HEAD", "HEAD~1"):
            try:
                out = look("diff", "--no-ext-diff", "--no-color", "-U0", "--relative", since, "--", cwd=self.folder)
            except EnvironmentCannot:
                return {}
            found = changed_lines(out.decode(errors="replace")) | {name: [] for name in self._new_code()}
            if theirs := {name: found[name] for name in found.keys() - self._exported(self.folder)}:
                return theirs
        return {}

    def _new_code(self) -> list[str]:
        """What git does not know may be anything, a report written here too: only what could be code counts."""
        globs = [glob for target in self.targets() for glob in (*target.tests, *target.sources)]
        return [name for name in untracked(self.folder) if any(matches(name, glob) for glob in globs)]

    def wrote(self, path: Path) -> None:
        """A report that was asked for is in the repository now: nobody changed anything there."""
        if self.repo and path.resolve().is_relative_to(self.repo):
            known = self._read("exports.json", dict[str, str]) or {}
            name = path.resolve().relative_to(self.repo).as_posix()
            known = {name: _mark_of(path).hex()} | {key: known[key] for key in known if key != name}
            self._remember("exports.json", msgspec.json.encode(dict(list(known.items())[:_EXPORTS_MAX])))

    def _exported(self, folder: Path) -> set[str]:
        """What we wrote below a folder and what is still as we wrote it, seen from there."""
        known = self._read("exports.json", dict[str, str]) or {}
        paths = {self.repo / name: mark for name, mark in known.items()} if self.repo else {}
        return {
            path.relative_to(folder).as_posix()
            for path, mark in paths.items()
            if path.is_relative_to(folder) and _mark_of(path).hex() == mark
        }

    async def _rerun(self, report: Report, tests: TestRun, folder: Path, log: Path, times: int) -> Report:
        """Run what failed again, at most so often. What then passes is flaky, and stays marked so."""
        for _ in range(times):
            red = [test for test in report.tests if test.status in RED and test.attempts <= times]
            if not red or report.status is not ReportStatus.FAILED:
                break
            only = by_target([test.id for test in red], tests.targets, report, folder)
            again = await msgspec.structs.replace(tests, only=only).run(folder, log=log)
            report = settle(report, again)
            if again.status is ReportStatus.INTERRUPTED:
                return msgspec.structs.replace(report, status=again.status, notes=[*report.notes, *again.notes])
        return report

    # --- where -----------------------------------------------------------------------------------------------

    @contextmanager
    def _place(self, choice: Choice, targets: list[Target]) -> Iterator[Path]:
        if not choice.isolated and not choice.ref:
            yield self.folder
            return
        if not self.repo:
            with self._copied() as folder:
                yield folder
            return
        try:
            commit = text(
                "rev-parse", "--verify", "--end-of-options", f"{choice.ref or 'HEAD'}^{{commit}}", cwd=self.repo
            )
        except GitFailed as error:
            raise UsageError(f"there is no revision {choice.ref or 'HEAD'!r}", hint="git log names them") from error
        with self._workspace(commit) as folder:
            if not choice.ref:
                lay_over(self.repo, folder)
            inside = folder / self.folder.relative_to(self.repo)
            borrow_dependencies(self.folder, inside, targets)
            yield inside

    def _without_ignored(self, report: Report) -> Report:
        """A setting that is only here is the first thing to look at when tests fail only in a copy."""
        assert self.repo
        carried = self.config.workspace.carry
        names = [name for name in ignored_files(self.repo) if name not in carried] if _is_red(report) else []
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        note = f"git ignores {', '.join(names[:3])}{more}, so the copy has none: workspace.carry takes files along"
        return msgspec.structs.replace(report, notes=[*report.notes, note]) if names else report

    @contextmanager
    def _copied(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="ratchet-isolated-") as place:
            folder = Path(place) / self.folder.name
            try:
                shutil.copytree(self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(".ratchet"))
            except shutil.Error as error:
                (path, _, why), *_ = error.args[0]
                raise EnvironmentCannot(f"{path} cannot be copied: {why}", hint="run without --isolated") from error
            yield folder

    @contextmanager
    def _workspace(self, commit: str) -> Iterator[Path]:
        from ratchet.isolated import workspace_at  # noqa: PLC0415 — brings all there is about workspaces

        assert self.repo
        with workspace_at(commit, self.repo, self.config) as made:
            yield made.path

    # --- remembering -----------------------------------------------------------------------------------------

    def conclude(
        self, report: Report, *, whole: bool, log: Path, tree: str = "", asked: Collection[str] = ()
    ) -> Outcome:
        """What a run means beside the last one, which it then replaces. `tree` names the content it ran on, `asked` are
        the tests that were chosen."""
        last = self.last()
        if whole:
            report = self._complete(report)
        delta = _delta(last, report) if last and whole else None
        outcome = Outcome(
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
        """The baseline, in which a test that got another name is still the same test."""
        names, known = dict(renamed), self.baseline()
        if not names.keys() & set(known):
            return known
        known = sorted(names.get(name, name) for name in known)
        self._remember("baseline.json", msgspec.json.encode(known))
        return known

    def _remember(self, name: str, content: bytes) -> None:
        """For the next run. What this one found is told even where there is no room for that."""
        try:
            memory.keep(self.state / name, content)
        except OSError as error:
            self._forgotten = error.strerror or str(error)

    def _with_forgotten(self, outcome: Outcome) -> Outcome:
        if not self._forgotten:
            return outcome
        note = f"the next run will not know of this one: {self._forgotten}"
        report = msgspec.structs.replace(outcome.report, notes=[*outcome.report.notes, note])
        return msgspec.structs.replace(outcome, report=report)

    def _elsewhere(self, report: Report, ref: str, log: Path) -> Outcome:
        """Of another revision: no word about the tree that is here, and so neither remembered nor compared."""
        flaky = self._flaky(report, self._tree_of(ref)) if self.repo else []
        return Outcome(report=report, targets=self.targets(), known=self.baseline(), flaky=flaky, log=str(log))

    def _tree_of(self, ref: str) -> str:
        """As `_tree` names it where nothing was changed."""
        commit = text("rev-parse", "--verify", "--end-of-options", f"{ref}^{{commit}}", cwd=self.repo)
        return hashlib.sha256(commit.encode()).hexdigest()[:16]

    def _complete(self, report: Report) -> Report:
        """A file that once had results, and still holds tests, must have some again; until then it stays known."""
        project, known = Project(self.folder), self._read("inventory.json", list[str]) or []
        if not (told := heard(report, project)):
            return report
        lost = missing(report, project, known)
        self._keep_inventory(told | set(lost))
        return without(report, lost)

    def _keep_inventory(self, files: set[str]) -> None:
        self._remember("inventory.json", msgspec.json.encode(sorted(files)))

    def _flaky(self, report: Report, tree: str) -> list[str]:
        """Ids that ended differently on the same tree, now or in the past."""
        history = self._read("history.json", History) or History()
        red = any(test.status in RED for test in report.tests)
        if red or any(test.id in history.outcomes for test in report.tests):
            history = remember(history, report, tree=tree or self._tree())
            self._remember("history.json", msgspec.json.encode(history))
        seen = {test.id for test in report.tests}
        again = {test.id for test in report.tests if test.attempts > 1 and test.status not in RED}
        flipped = {name for name, known in self.known().items() if known.flips}
        return sorted(again | ((set(history.flaky()) | flipped) & seen))

    def _tree(self) -> str:
        """The content the tests ran on; a name that never repeats where git cannot be asked."""
        if not self.repo:
            return secrets.token_hex(8)
        ours = self._exported(self.repo)
        others = [f":(top,exclude,literal){name}" for name in sorted(ours)]
        try:
            seen = hashlib.sha256(text("rev-parse", "HEAD", cwd=self.repo).encode())
            seen.update(look("diff", "--no-ext-diff", "--binary", "HEAD", "--", ":/", *others, cwd=self.repo))
            names = untracked(self.repo)
        except EnvironmentCannot:
            return secrets.token_hex(8)
        for name in names:
            seen.update(os.fsencode(name) + b"\0" + _mark_of(self.repo / name) if name not in ours else b"")
        return seen.hexdigest()[:16]

    def last(self) -> Report | None:
        return self._read("last.json", Report)

    def baseline(self) -> list[str]:
        return self._read("baseline.json", list[str]) or []

    def known(self) -> dict[str, Known]:
        """For each test how it ended last, how long it takes and how flaky it is, as a watch keeps it."""
        return self._read("known.json", dict[str, Known]) or {}

    def keep_known(self, known: dict[str, Known]) -> None:
        memory.keep(self.state / "known.json", msgspec.json.encode(known))

    def save_baseline(self, report: Report) -> list[str]:
        """From now on these failures are known: they are shown, and no longer make the answer no. Nor are files missed
        that have no results now."""
        red = sorted(test.id for test in report.tests if test.status in RED)
        memory.keep(self.state / "baseline.json", msgspec.json.encode(red))
        self._keep_inventory(heard(report, Project(self.folder)))
        return red

    def _read(self, name: str, kind: type[T]) -> T | None:
        """What was kept last time; a file of another version is as good as none."""
        try:
            return msgspec.json.decode((self.state / name).read_bytes(), type=kind)
        except (OSError, msgspec.DecodeError):
            return None


_EXPORTS_MAX = 50


def _mark_of(path: Path) -> bytes:
    """What tells a file's content from another; of a huge one, which nobody waits for, when it was written."""
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
        root = Path(text("rev-parse", "--show-toplevel", "HEAD^{commit}", cwd=folder).rpartition("\n")[0])
    except (GitFailed, ProgramMissing):
        return None
    return root


def _no_repository(folder: Path) -> str:
    """What to do about it; git refuses what belongs to another user, as in many containers, and is not asked why."""
    owned = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    if owned and owned.stat().st_uid != os.getuid():
        return f"if you trust it, which is another user's: git config --global --add safe.directory {owned}"
    return "run all tests: ratchet test"


def _idle(choice: Choice, last: Report | None) -> str:
    """Why nothing is to be run though nothing was named; empty where all tests are.

    A failure that was no test's, or of a run that nobody remembers, can be looked for only in all of them.
    """
    if choice.ids:
        return ""
    if choice.failed:
        return "nothing failed last time" if last and not broken(last) and last.status in _TOLD else ""
    return "the changes reach no test" if choice.affected else ""


def _is_red(report: Report) -> bool:
    return bool(broken(report)) or any(test.status in RED for test in report.tests)


def _red(last: Report | None) -> list[TestResult]:
    return [test for test in last.tests if test.status in RED] if last and not broken(last) else []


def _updated(last: Report, report: Report, asked: Collection[str]) -> Report:
    """The last whole report with the newer results in it: what --failed goes by."""
    newer = {test.id: test for test in report.tests}
    mended = {test.id for test in last.tests if test.id in asked and _is_mended(test, report)}
    kept = {test.id: newer.get(test.id, test) for test in last.tests if test.id not in mended}
    tests = list((kept | newer).values())
    status = ReportStatus.FAILED if any(test.status in RED for test in tests) else ReportStatus.PASSED
    status = status if last.status in _TOLD and not broken(last) else last.status
    return msgspec.structs.replace(last, tests=tests, totals=totals_of(tests), status=status)


def _delta(last: Report, report: Report) -> Delta:
    """What was not reached is not gone."""
    delta, unreached = compare(last, report), {test.id for test in _unreached(last, report)}
    return msgspec.structs.replace(delta, missing=[name for name in delta.missing if name not in unreached])


def _reached(last: Report | None, report: Report) -> Report:
    """A whole run, to be remembered. Of what it did not reach, the last word still holds."""
    if not last or not (unreached := _unreached(last, report)):
        return report
    tests = [*report.tests, *unreached]
    return msgspec.structs.replace(report, tests=tests, totals=totals_of(tests))


def _unreached(last: Report, report: Report) -> list[TestResult]:
    """Tests that were there, behind where the run was cut off, or in files that do not load now."""
    told, files = {test.id for test in report.tests}, {error.file for error in broken(report)}
    cut = report.status in _CUT
    return [test for test in last.tests if test.id not in told and (cut or test.file in files)]


def _all_were_run(report: Report, last: Report | None) -> Report:
    """Why --failed did not choose."""
    why = "a file was broken" if last and broken(last) else "the last run did not name what failed"
    note = f"all tests were run: {why if last else 'no earlier run is known'}"
    return msgspec.structs.replace(report, notes=[*report.notes, note])


def _is_mended(test: TestResult, report: Report) -> bool:
    """A hook tells of itself only when it fails: that it does not, its tests say."""
    told = any(newer.file == test.file and newer.suite[: len(test.suite)] == test.suite for newer in report.tests)
    return test.phase != "call" and told and test.id not in {newer.id for newer in report.tests}


def borrow_dependencies(source: Path, workspace: Path, targets: list[Target]) -> None:
    """Installed dependencies are not in the commit: borrow the host's where the workspace has none."""
    for root in {target.root for target in targets} | {"."}:
        for name in _SHARED:
            here, there = source / root / name, workspace / root / name
            if here.is_dir() and not there.exists() and there.parent.is_dir():
                there.symlink_to(here, target_is_directory=True)
