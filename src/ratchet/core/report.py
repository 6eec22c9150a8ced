"""The structured result of every test runner. Verdicts come from per-test records, never from an exit code alone."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from signal import Signals

import msgspec

from ratchet.core.lines import split_lines


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
    """`inconsistent`: the runner's results contradict each other. Only `passed` is a success."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NO_TESTS = "no_tests"
    INCONSISTENT = "inconsistent"
    UNKNOWN = "unknown"


# These three also take positional arguments: reports hold up to half a million of them, and keywords would take three
# quarters of the parsing time.
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


def expected_text(failure: Failure) -> str | None:
    """Return the expected value, with its operator unless that is equality: `!= 2` differs from `2`."""
    odd = failure.operator in _ODD and failure.expected is not None
    return f"{failure.operator} {failure.expected}" if odd else failure.expected


def message_lines(failure: Failure) -> list[str]:
    """Return the lines of the message. A comparison's message repeats its values, which are shown separately: then only
    the first line and the notes are returned."""
    lines = split_lines(failure.message.strip())
    if failure.expected is None and failure.actual is None:
        return lines
    noted = next((at for at, line in enumerate(lines) if at and line.startswith("note: ")), len(lines))
    return [*lines[:1], *lines[noted:]]


class TestResult(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """`id` is the runner's own name for the test, verbatim: pass it back to run the test alone.

    In a report of several targets, `target` names its target, and ids and files are relative to the repository. If
    several commands of a target run the same test, a number after its name tells the results apart.
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


class TargetSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of one target in a report of several."""

    runner: str
    root: str = "."
    status: ReportStatus
    totals: Totals = Totals()
    command: list[str] = []
    exit_code: int | None = None
    duration_s: float = 0.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test run. All fields are always written, so readers need not check for them.

    `reported` is the runner's own summary, used as a cross-check; `running` names the tests that ran when the runner
    died. With several targets `parts` has one entry per target, and the other fields combine them.
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
    parts: list[TargetSummary] = []


_COUNTED = {
    TestStatus.PASSED: "passed",
    TestStatus.FAILED: "failed",
    TestStatus.ERROR: "errors",
    TestStatus.SKIPPED: "skipped",
    TestStatus.XFAILED: "xfailed",
    TestStatus.XPASSED: "xpassed",
    TestStatus.TODO: "todo",
}


def count_totals(tests: Iterable[TestResult]) -> Totals:
    counts = Counter(_COUNTED[test.status] for test in tests)
    return Totals(tests=sum(counts.values()), **counts)


INTERRUPT = "interrupt"


def decide_status(
    *,
    tests: list[TestResult],
    broken: int,
    exit_code: int | None,
    ended: bool,
    timed_out: str,
    notes: list[str],
) -> ReportStatus:
    """Return the status of a run, gravest first. `ended` says whether the runner reported its own end."""
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
    """Build the report of one run. Only here do records, the runner's totals and the exit code become a status.

    `timed_out` is empty, the timeout that expired, or `INTERRUPT`.
    """
    report = Report(
        runner=runner,
        root=root,
        command=command,
        status=ReportStatus.UNKNOWN,
        exit_code=exit_code,
        signal=-exit_code if exit_code is not None and exit_code < 0 else None,
        duration_s=duration_s,
        totals=count_totals(tests),
        tests=tests,
        collection_errors=collection_errors,
        compile_errors=compile_errors,
        reported=reported,
        notes=notes,
        running=running,
    )
    if not timed_out and ended and _is_counts_only(report):
        return _from_counts(report)
    found = _find_contradictions(report, is_cut=bool(timed_out) or not ended, is_damaged=partial and ended)
    status = decide_status(
        tests=tests,
        broken=len(load_errors(report)),
        exit_code=exit_code,
        ended=ended,
        timed_out=timed_out,
        notes=found,
    )
    return msgspec.structs.replace(report, status=status, notes=_explain_status(report, status, found, timed_out))


def _is_counts_only(report: Report) -> bool:
    return (
        not report.tests and not load_errors(report) and report.exit_code is not None and any(report.reported.values())
    )


def _find_contradictions(report: Report, *, is_cut: bool, is_damaged: bool) -> list[str]:
    """Return contradictions in the results. The totals of an interrupted run are not compared."""
    found = [
        *report.notes,
        *([] if is_cut else disagreements(report.totals, report.reported, len(load_errors(report)))),
    ]
    return [*found, "the runner's results are damaged: only a part could be read"] if is_damaged else found


def _explain_status(report: Report, status: ReportStatus, notes: list[str], timed_out: str) -> list[str]:
    """Return the notes, with an explanation of the status if they have none."""
    if status is ReportStatus.INCONSISTENT and not notes:
        return [_exit_contradiction(report.totals, len(load_errors(report)), report.exit_code)]
    if timed_out == INTERRUPT:
        inside = f" in {', '.join(report.running)}" if report.running else ""
        return [f"interrupted{inside}: these are the results up to then", *notes]
    if timed_out:
        return [f"stopped: {'no output for too long' if timed_out == 'silence' else 'out of time'}", *notes]
    return notes


def reported_totals(reported: dict[str, int]) -> Totals:
    """Return totals from the runner's own counts, if nothing else is known; tests in no other count have passed."""
    known = {name: count for name, count in reported.items() if name in Totals.__struct_fields__}
    others = sum(count for name, count in known.items() if name != "tests")
    passed = known.get("passed", max(0, known.get("tests", 0) - others))
    return msgspec.structs.replace(Totals(**known), passed=passed, tests=max(known.get("tests", 0), others))


def _from_counts(report: Report) -> Report:
    """Use the totals of a runner that names no tests, provided that its exit code agrees with them."""
    totals = reported_totals(report.reported)
    red = totals.failed + totals.errors
    status = ReportStatus.FAILED if red else ReportStatus.PASSED
    notes = report.notes
    if bool(red) != bool(report.exit_code):
        notes = [*notes, _exit_contradiction(totals, 0, report.exit_code)]
    if notes:
        status = ReportStatus.INCONSISTENT
    return msgspec.structs.replace(report, totals=totals, status=status, notes=notes)


def disagreements(totals: Totals, reported: dict[str, int], broken_files: int) -> list[str]:
    """Return where the runner's counts contradict its records under every plausible way of counting."""
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
        f"the runner says {claimed} {name}, its records say {counted[name]}"
        for name, claimed in sorted(reported.items())
        if name in fair and claimed not in fair[name]
    ]


def _exit_contradiction(totals: Totals, broken_files: int, exit_code: int | None) -> str:
    red = totals.failed + totals.errors
    what = f"{red} tests failed" if red else f"{broken_files} files did not load" if broken_files else "nothing failed"
    return f"{what}, yet the command ended with {exit_code}"


# The part before `::` is a file, not a module as in Rust.
_IN_FILE = re.compile(r"[^:]*\.\w+::")


def _describe_exit(report: Report) -> str:
    if report.signal:
        return f"was killed by {Signals(report.signal).name if report.signal in {*Signals} else report.signal}"
    return "died" if report.exit_code is None else f"died (exit code {report.exit_code})"


def add_running_tests(report: Report, places: Mapping[str, tuple[str, int]] | None = None) -> Report:
    """Add a result for each test that was running when the run was stopped or died: it is the first suspect.
    `places` maps test ids to file and line, where known."""
    if report.status not in (ReportStatus.TIMEOUT, ReportStatus.CRASHED) or not report.running:
        return report
    hung = report.status is ReportStatus.TIMEOUT
    how = "was still running when the time ran out" if hung else f"was running when the runner {_describe_exit(report)}"
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
    return msgspec.structs.replace(report, tests=tests, totals=count_totals(tests))


# The gravest status of the parts is the status of the whole.
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


_CLEAN = (ReportStatus.PASSED, ReportStatus.NO_TESTS)


def merge_targets(reports: list[Report]) -> Report:
    """Merge the reports of several targets, with paths relative to the repository. No reports: no tests."""
    if len(reports) == 1:
        return reports[0] if reports[0].root == "." else _rebase_to_repository(reports[0])
    moved = [_rebase_to_repository(report) for report in reports]
    tests = [test for report in moved for test in report.tests]
    return Report(
        runner="+".join(dict.fromkeys(report.runner for report in reports)) or "none",
        status=min((report.status for report in reports), key=_GRAVITY.index, default=ReportStatus.NO_TESTS),
        exit_code=next((report.exit_code for report in reports if report.exit_code), 0) if reports else None,
        duration_s=round(sum(report.duration_s for report in reports), 3),
        totals=count_totals(tests),
        tests=tests,
        collection_errors=[error for report in moved for error in report.collection_errors],
        compile_errors=[error for report in moved for error in report.compile_errors],
        notes=[f"{target_name(report)}: {note}" for report in reports for note in report.notes],
        running=[name for report in moved for name in report.running],
        output="".join(report.output for report in reports if report.status not in _CLEAN),
        parts=[
            msgspec.convert(msgspec.structs.asdict(report), TargetSummary, from_attributes=True) for report in reports
        ],
    )


def merge_commands(reports: list[Report]) -> Report:
    """Merge the reports of several commands of one target. A test that two commands ran counts as two tests."""
    if len(reports) == 1:
        return reports[0]
    with_tests = [report for report in reports if report.status is not ReportStatus.NO_TESTS] or reports[:1]
    tests = _number_duplicates([test for report in with_tests for test in report.tests])
    return msgspec.structs.replace(
        with_tests[0],
        status=min((report.status for report in with_tests), key=_GRAVITY.index),
        exit_code=next((report.exit_code for report in with_tests if report.exit_code), with_tests[0].exit_code),
        signal=next((report.signal for report in with_tests if report.signal), None),
        duration_s=round(sum(report.duration_s for report in reports), 3),
        totals=count_totals(tests),
        tests=tests,
        collection_errors=list(dict.fromkeys(error for report in with_tests for error in report.collection_errors)),
        compile_errors=list(dict.fromkeys(error for report in with_tests for error in report.compile_errors)),
        reported=dict(sum((Counter(report.reported) for report in with_tests), Counter())),
        notes=[f"`{' '.join(report.command)}`: {note}" for report in with_tests for note in report.notes],
        running=[name for report in with_tests for name in report.running],
        output="".join(report.output for report in with_tests if report.status not in _CLEAN),
    )


def _number_duplicates(tests: list[TestResult]) -> list[TestResult]:
    """Append a number to each repeated id."""
    known: set[str] = set()
    found: list[TestResult] = []
    for test in tests:
        names = (f"{test.id} ({number})" if number > 1 else test.id for number in range(1, len(tests) + 1))
        own = next(name for name in names if name not in known)
        known.add(own)
        found.append(test if own == test.id else msgspec.structs.replace(test, id=own))
    return found


def target_name(report: Report) -> str:
    """Return the target's name: the runner, and its folder unless that is the repository itself."""
    return report.runner if report.root == "." else f"{report.runner}@{report.root}"


def _rebase_to_repository(report: Report) -> Report:
    """Make ids and files relative to the repository, so that two packages may have tests of the same name."""
    name, root = target_name(report), report.root

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


def report_digest(report: Report) -> str:
    """Return a digest of test ids and statuses for a proof, without times and messages."""
    rows = sorted(f"{test.id}\0{test.status}" for test in report.tests)
    rows += sorted(f"broken\0{error.file}" for error in load_errors(report))
    return "sha256:" + hashlib.sha256("\n".join(rows).encode()).hexdigest()


def load_errors(report: Report) -> list[Diagnostic]:
    return [*report.collection_errors, *report.compile_errors]


def has_results(error: Diagnostic, report: Report) -> bool:
    """Whether the report has results of the file, or of the folder (Go reports packages as folders)."""
    return not error.file or any(
        error.file in (test.file, test.file.rpartition("/")[0] or ".") for test in report.tests if test.file
    )


def error_summary(error: Diagnostic, report: Report) -> str:
    """Describe a file's error: if its tests have results, it was loaded, and the error happened outside of them."""
    return "went wrong outside of its tests" if has_results(error, report) else "does not load"


_NOISE = [
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),  # object addresses
    (re.compile(r"(?:/[\w.+@%~-]+)+/"), "/"),  # folders: a workspace has another path each time
    (re.compile(r"\s+"), " "),
]


def fingerprint(report: Report, ids: Iterable[str]) -> str:
    """Return a digest of how the named tests failed, without details that change from run to run."""
    wanted = set(ids)
    rows = [f"{t.id}\0{_shape(t.failure)}" for t in report.tests if t.id in wanted]
    rows += [f"{e.file}\0{e.type}: {_without_noise(e.message)}" for e in load_errors(report) if e.file in wanted]
    return "sha256:" + hashlib.sha256("\n".join(sorted(rows)).encode()).hexdigest()


def _shape(failure: Failure | None) -> str:
    return f"{failure.type}: {_without_noise(failure.message)}" if failure else ""


def _without_noise(text: str) -> str:
    line = split_lines(text.strip())[0] if text.strip() else ""
    for pattern, plain in _NOISE:
        line = pattern.sub(plain, line)
    return line
