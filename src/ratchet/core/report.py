"""One structured result for every test runner. Verdicts come from per-test records, never from an exit code alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from signal import Signals

import msgspec


class TestStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    TODO = "todo"


RED = frozenset({TestStatus.FAILED, TestStatus.ERROR})
GREEN = frozenset({TestStatus.PASSED, TestStatus.XPASSED})


class ReportStatus(StrEnum):
    """`inconsistent`: channels disagree about the same run. Only `passed` is a yes."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NO_TESTS = "no_tests"
    INCONSISTENT = "inconsistent"
    UNKNOWN = "unknown"


# These three not only by keywords: documents have half a million of them, and that takes three quarters of the time.
class Frame(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A stack frame inside the project, innermost last. Lines count from 1."""

    file: str
    line: int = 0
    function: str = ""
    code: str = ""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    type: str = ""
    message: str = ""
    expected: str | None = None
    actual: str | None = None
    operator: str = ""
    diff: str = ""
    file: str = ""
    line: int = 0
    frames: list[Frame] = []


_ODD = {"!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"}


def wanted(failure: Failure) -> str | None:
    """What was expected, with its operator where that is not equality: `!= 2` is another wish than `2`."""
    odd = failure.operator in _ODD and failure.expected is not None
    return f"{failure.operator} {failure.expected}" if odd else failure.expected


def gist(failure: Failure) -> list[str]:
    """The message's lines. A comparison's are the values once more: where those are told by themselves, the first line
    is enough, and the notes that were added to it, for nothing else has what they say."""
    lines = failure.message.strip().splitlines()
    if failure.expected is None and failure.actual is None:
        return lines
    noted = next((at for at, line in enumerate(lines) if at and line.startswith("note: ")), len(lines))
    return [*lines[:1], *lines[noted:]]


class TestResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`id` is the runner's own name for the test, verbatim: what to pass back to run it alone.

    In a report of several targets, `target` says whose it is, and ids and files start at the repository. Where a target
    has several commands, a number behind its name says which of them ran the test.
    `attempts` above one on a passed test means flaky: it failed before it passed, on the same tree.
    `body` is a digest of the test's source without its name: the same test is found again under another one.
    """

    id: str
    status: TestStatus
    name: str = ""
    suite: list[str] = []
    file: str = ""
    line: int = 0
    duration_s: float = 0.0
    phase: str = "call"
    reason: str = ""
    failure: Failure | None = None
    attempts: int = 1
    stdout: str = ""
    stderr: str = ""
    target: str = ""
    body: str = ""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A file that did not compile or load: its tests are missing from the run."""

    file: str = ""
    line: int = 0
    column: int = 0
    type: str = ""
    code: str = ""
    message: str = ""
    tool: str = ""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    tests: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    xfailed: int = 0
    xpassed: int = 0
    todo: int = 0


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a report over several: how its own run went."""

    runner: str
    root: str = "."
    status: ReportStatus
    totals: Totals = Totals()
    command: list[str] = []
    exit_code: int | None = None
    duration_s: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Written with all its fields, whatever happened: who reads one need not ask which are there.

    `reported` is the runner's own summary, a cross-check; `running` names what ran when the runner died.
    With several targets `parts` has one entry for each, and everything else is theirs together.
    """

    runner: str
    status: ReportStatus
    totals: Totals = Totals()
    runner_version: str = ""
    root: str = "."
    command: list[str] = []
    exit_code: int | None = None
    signal: int | None = None
    duration_s: float = 0.0
    tests: list[TestResult] = []
    collection_errors: list[Diagnostic] = []
    compile_errors: list[Diagnostic] = []
    reported: dict[str, int] = {}
    notes: list[str] = []
    running: list[str] = []
    output: str = ""
    parts: list[Part] = []


_COUNTED = {
    TestStatus.PASSED: "passed",
    TestStatus.FAILED: "failed",
    TestStatus.ERROR: "errors",
    TestStatus.SKIPPED: "skipped",
    TestStatus.XFAILED: "xfailed",
    TestStatus.XPASSED: "xpassed",
    TestStatus.TODO: "todo",
}


def totals_of(tests: Iterable[TestResult]) -> Totals:
    counts = Counter(_COUNTED[test.status] for test in tests)
    return Totals(tests=sum(counts.values()), **counts)


INTERRUPT = "interrupt"


def status_of(
    *,
    tests: list[TestResult],
    broken: int,
    exit_code: int | None,
    ended: bool,
    timed_out: str,
    notes: list[str],
) -> ReportStatus:
    """The verdict of a run, in order of gravity. `ended` says whether the runner reported its own end."""
    red = any(test.status in RED for test in tests)
    if timed_out:
        return ReportStatus.INTERRUPTED if timed_out == INTERRUPT else ReportStatus.TIMEOUT
    if not ended:
        return ReportStatus.CRASHED
    if notes:
        return ReportStatus.INCONSISTENT
    if not tests and not broken:
        return ReportStatus.NO_TESTS
    if red or broken:
        return ReportStatus.INCONSISTENT if exit_code == 0 else ReportStatus.FAILED
    return ReportStatus.PASSED if exit_code == 0 else ReportStatus.INCONSISTENT


def conclude(
    *,
    runner: str,
    root: str,
    command: list[str],
    exit_code: int | None,
    timed_out: str,
    duration_s: float,
    tests: list[TestResult],
    collection_errors: list[Diagnostic],
    compile_errors: list[Diagnostic],
    reported: dict[str, int],
    ended: bool,
    partial: bool,
    notes: list[str],
    running: list[str],
) -> Report:
    """One run's report. The only place where what a channel said, its own totals and the exit code become a verdict.

    `timed_out` is empty, or which clock ran out, or that somebody stopped it.
    """
    told = Report(
        runner=runner,
        root=root,
        command=command,
        status=ReportStatus.UNKNOWN,
        exit_code=exit_code,
        signal=-exit_code if exit_code is not None and exit_code < 0 else None,
        duration_s=duration_s,
        totals=totals_of(tests),
        tests=tests,
        collection_errors=collection_errors,
        compile_errors=compile_errors,
        reported=reported,
        notes=notes,
        running=running,
    )
    if not timed_out and ended and _is_counts_only(told):
        return _from_counts(told)
    found = _contradictions(told, is_cut=bool(timed_out) or not ended, is_damaged=partial and ended)
    status = status_of(
        tests=tests,
        broken=len(broken(told)),
        exit_code=exit_code,
        ended=ended,
        timed_out=timed_out,
        notes=found,
    )
    return msgspec.structs.replace(told, status=status, notes=_explained(told, status, found, timed_out))


def _is_counts_only(told: Report) -> bool:
    return not told.tests and not broken(told) and told.exit_code is not None and any(told.reported.values())


def _contradictions(told: Report, *, is_cut: bool, is_damaged: bool) -> list[str]:
    """What speaks against believing the records. A run that was cut off cannot have agreed with its own totals."""
    found = [*told.notes, *([] if is_cut else disagreements(told.totals, told.reported, len(broken(told))))]
    return [*found, "the runner's results are damaged: only a part could be read"] if is_damaged else found


def _explained(told: Report, status: ReportStatus, notes: list[str], timed_out: str) -> list[str]:
    """The notes, and why it is this status where none of them says so."""
    if status is ReportStatus.INCONSISTENT and not notes:
        return [_against_exit(told.totals, len(broken(told)), told.exit_code)]
    if timed_out == INTERRUPT:
        inside = f" in {', '.join(told.running)}" if told.running else ""
        return [f"interrupted{inside}: these are the results up to then", *notes]
    if timed_out:
        return [f"stopped: {'nothing was heard for too long' if timed_out == 'silence' else 'out of time'}", *notes]
    return notes


def totals_reported(reported: dict[str, int]) -> Totals:
    """The runner's own counts, where nothing else is known: what it does not speak of has passed."""
    known = {name: count for name, count in reported.items() if name in Totals.__struct_fields__}
    told = sum(count for name, count in known.items() if name != "tests")
    passed = known.get("passed", max(0, known.get("tests", 0) - told))
    return msgspec.structs.replace(Totals(**known), passed=passed, tests=max(known.get("tests", 0), told))


def _from_counts(report: Report) -> Report:
    """A runner that prints totals and names no test: they count if its exit code agrees with them."""
    totals = totals_reported(report.reported)
    red = totals.failed + totals.errors
    status = ReportStatus.FAILED if red else ReportStatus.PASSED
    notes = report.notes
    if bool(red) != bool(report.exit_code):
        notes = [*notes, _against_exit(totals, 0, report.exit_code)]
    if notes:
        status = ReportStatus.INCONSISTENT
    return msgspec.structs.replace(report, totals=totals, status=status, notes=notes)


def disagreements(totals: Totals, reported: dict[str, int], broken_files: int) -> list[str]:
    """Where the runner's own counts cannot be squared with its records, however it counts what lies in between."""
    quiet = {0, totals.todo, totals.xfailed, totals.todo + totals.xfailed}
    fair = {
        "tests": {totals.tests, totals.tests + broken_files, totals.tests - totals.skipped},
        "passed": {
            totals.passed + more for more in {totals.xpassed, totals.xfailed, totals.skipped + totals.todo} | quiet
        },
        "failed": {totals.failed, totals.failed + totals.errors, totals.failed + totals.errors + broken_files},
        "errors": {0, totals.errors, totals.errors + broken_files, broken_files},
        "skipped": {totals.skipped + more for more in quiet},
    }
    counted = msgspec.structs.asdict(totals)
    return [
        f"the runner says {said} {name}, its records say {counted[name]}"
        for name, said in sorted(reported.items())
        if name in fair and said not in fair[name]
    ]


def _against_exit(totals: Totals, broken_files: int, exit_code: int | None) -> str:
    red = totals.failed + totals.errors
    what = f"{red} tests failed" if red else f"{broken_files} files did not load" if broken_files else "nothing failed"
    return f"{what}, yet the command ended with {exit_code}"


# Before the colons stands a file, and not a module as in Rust's names.
_IN_FILE = re.compile(r"[^:]*\.\w+::")


def _death(report: Report) -> str:
    if report.signal:
        return f"was killed by {Signals(report.signal).name if report.signal in {*Signals} else report.signal}"
    return "died" if report.exit_code is None else f"died (exit code {report.exit_code})"


def names_running(report: Report, places: Mapping[str, tuple[str, int]] | None = None) -> Report:
    """A test that was running when the run was stopped or died gets a result of its own: it is the first suspect.
    `places` says of each where it is written, as far as that is known."""
    if report.status not in (ReportStatus.TIMEOUT, ReportStatus.CRASHED) or not report.running:
        return report
    hung = report.status is ReportStatus.TIMEOUT
    how = "was still running when the time ran out" if hung else f"was running when the runner {_death(report)}"
    kind = "Hung" if hung else "Crashed"
    known = {test.id for test in report.tests}
    at = places or {}
    lost = [
        TestResult(
            id=name,
            status=TestStatus.ERROR,
            file=at[name][0] if name in at else name.partition("::")[0] if _IN_FILE.match(name) else "",
            line=at[name][1] if name in at else 0,
            name=name.rpartition("::")[2] if "::" in name else "",
            failure=Failure(type=kind, message=f"{name} {how}"),
        )
        for name in report.running
        if name not in known
    ]
    tests = [*report.tests, *lost]
    return msgspec.structs.replace(report, tests=tests, totals=totals_of(tests))


# The gravest part decides for all.
_GRAVITY = [
    ReportStatus.INTERRUPTED,
    ReportStatus.TIMEOUT,
    ReportStatus.CRASHED,
    ReportStatus.ERROR,
    ReportStatus.INCONSISTENT,
    ReportStatus.UNKNOWN,
    ReportStatus.FAILED,
    ReportStatus.PASSED,
    ReportStatus.NO_TESTS,
]


_QUIET = (ReportStatus.PASSED, ReportStatus.NO_TESTS)


def merge(reports: list[Report]) -> Report:
    """Several targets' reports as one, seen from the repository. Without any there were no tests."""
    if len(reports) == 1:
        return reports[0] if reports[0].root == "." else _from_repository(reports[0])
    moved = [_from_repository(report) for report in reports]
    tests = [test for report in moved for test in report.tests]
    return Report(
        runner="+".join(dict.fromkeys(report.runner for report in reports)) or "none",
        status=min((report.status for report in reports), key=_GRAVITY.index, default=ReportStatus.NO_TESTS),
        exit_code=next((report.exit_code for report in reports if report.exit_code), 0) if reports else None,
        duration_s=round(sum(report.duration_s for report in reports), 3),
        totals=totals_of(tests),
        tests=tests,
        collection_errors=[error for report in moved for error in report.collection_errors],
        compile_errors=[error for report in moved for error in report.compile_errors],
        notes=[f"{name_of(report)}: {note}" for report in reports for note in report.notes],
        running=[name for report in moved for name in report.running],
        output="".join(report.output for report in reports if report.status not in _QUIET),
        parts=[msgspec.convert(msgspec.structs.asdict(report), Part, from_attributes=True) for report in reports],
    )


def together(reports: list[Report]) -> Report:
    """What several commands of one target came to, as one report. A test that two of them ran is two tests."""
    if len(reports) == 1:
        return reports[0]
    heard = [report for report in reports if report.status is not ReportStatus.NO_TESTS] or reports[:1]
    tests = _apart([test for report in heard for test in report.tests])
    return msgspec.structs.replace(
        heard[0],
        status=min((report.status for report in heard), key=_GRAVITY.index),
        exit_code=next((report.exit_code for report in heard if report.exit_code), heard[0].exit_code),
        signal=next((report.signal for report in heard if report.signal), None),
        duration_s=round(sum(report.duration_s for report in reports), 3),
        totals=totals_of(tests),
        tests=tests,
        collection_errors=list(dict.fromkeys(error for report in heard for error in report.collection_errors)),
        compile_errors=list(dict.fromkeys(error for report in heard for error in report.compile_errors)),
        reported=dict(sum((Counter(report.reported) for report in heard), Counter())),
        notes=[f"`{' '.join(report.command)}`: {note}" for report in heard for note in report.notes],
        running=[name for report in heard for name in report.running],
        output="".join(report.output for report in heard if report.status not in _QUIET),
    )


def _apart(tests: list[TestResult]) -> list[TestResult]:
    """With a number behind each id that came before."""
    known: set[str] = set()
    found: list[TestResult] = []
    for test in tests:
        names = (f"{test.id} ({number})" if number > 1 else test.id for number in range(1, len(tests) + 1))
        own = next(name for name in names if name not in known)
        known.add(own)
        found.append(test if own == test.id else msgspec.structs.replace(test, id=own))
    return found


def name_of(report: Report) -> str:
    """The target's name: the runner, and its folder when that is not the repository itself."""
    return report.runner if report.root == "." else f"{report.runner}@{report.root}"


def _from_repository(report: Report) -> Report:
    """With ids and files that start at the repository, so that two packages may have tests of one name."""
    name, root = name_of(report), report.root

    def path(file: str) -> str:
        return file if root == "." or not file or file.startswith("/") else f"{root}/{file}"

    def moved_failure(failure: Failure) -> Failure:
        frames = [msgspec.structs.replace(frame, file=path(frame.file)) for frame in failure.frames]
        return msgspec.structs.replace(failure, file=path(failure.file), frames=frames)

    def moved(test: TestResult) -> TestResult:
        failure = moved_failure(test.failure) if test.failure else None
        of = test.target or name
        return msgspec.structs.replace(test, id=path(test.id), file=path(test.file), failure=failure, target=of)

    def moved_error(error: Diagnostic) -> Diagnostic:
        return msgspec.structs.replace(error, file=path(error.file))

    return msgspec.structs.replace(
        report,
        tests=[moved(test) for test in report.tests],
        collection_errors=[moved_error(error) for error in report.collection_errors],
        compile_errors=[moved_error(error) for error in report.compile_errors],
        running=[path(name) for name in report.running],
    )


def digest(report: Report) -> str:
    """The report's identity for a proof: which tests there were and how each ended; no times, no wording."""
    rows = sorted(f"{test.id}\0{test.status}" for test in report.tests)
    rows += sorted(f"broken\0{error.file}" for error in broken(report))
    return "sha256:" + hashlib.sha256("\n".join(rows).encode()).hexdigest()


def broken(report: Report) -> list[Diagnostic]:
    return [*report.collection_errors, *report.compile_errors]


def is_beside(error: Diagnostic, report: Report) -> bool:
    """Whether there are results of its file, or of its folder, as which Go's packages are told of."""
    return not error.file or any(
        error.file in (test.file, test.file.rpartition("/")[0] or ".") for test in report.tests if test.file
    )


def trouble(error: Diagnostic, report: Report) -> str:
    """A file whose tests have results was loaded: what is told of it happened beside them."""
    return "went wrong outside of its tests" if is_beside(error, report) else "does not load"


_NOISE = [
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),  # object addresses
    (re.compile(r"(?:/[\w.+@%~-]+)+/"), "/"),  # folders: a workspace has another path each time
    (re.compile(r"\s+"), " "),
]


def fingerprint(report: Report, ids: Iterable[str]) -> str:
    """How the named tests failed, without what changes from run to run."""
    wanted = set(ids)
    rows = [f"{t.id}\0{_shape(t.failure)}" for t in report.tests if t.id in wanted]
    rows += [f"{e.file}\0{e.type}: {_quiet(e.message)}" for e in broken(report) if e.file in wanted]
    return "sha256:" + hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _shape(failure: Failure | None) -> str:
    return f"{failure.type}: {_quiet(failure.message)}" if failure else ""


def _quiet(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else ""
    for pattern, plain in _NOISE:
        line = pattern.sub(plain, line)
    return line
