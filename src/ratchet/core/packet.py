"""What an agent is told about a test run: the delta, the failures in clusters, expected and actual; no raw log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec

from ratchet.core.compare import Delta
from ratchet.core.report import RED, Diagnostic, Failure, Frame, Report, ReportStatus, TestResult, broken, gist, wanted

BUDGET_CHARS = 4_000
_CLUSTERS_MAX = 5
_MESSAGE_CHARS = 300
_VALUE_CHARS = 1_200
_OUTPUT_LINES = 10
_SUSPECTS_MAX = 5
Again = Callable[[TestResult], str]
# The lines of each changed file, first and last; a file without any is changed as a whole.
Changed = Mapping[str, list[tuple[int, int]]]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of one kind at one place: one is told whole, the others by name."""

    key: tuple[str, str]
    tests: list[TestResult]


def clusters(tests: Iterable[TestResult]) -> list[Cluster]:
    """By type and deepest project frame; the biggest first, and in a stable order, so that two packets compare well."""
    found: dict[tuple[str, str], list[TestResult]] = {}
    for test in sorted(tests, key=lambda test: test.id):
        found.setdefault(_key(test), []).append(test)
    made = [Cluster(key=key, tests=same) for key, same in found.items()]
    return sorted(made, key=lambda cluster: (-len(cluster.tests), cluster.key, cluster.tests[0].id))


def _key(test: TestResult) -> tuple[str, str]:
    failure = test.failure or Failure()
    place = f"{failure.file}:{failure.line}" if failure.file else _shape(failure.message)
    return failure.type, place or test.id  # of which nothing is known, not even that they are alike


def _shape(message: str) -> str:
    return re.sub(r"\d+", "0", message.strip().splitlines()[0] if message.strip() else "")[:80]


_HUNK = re.compile(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@")


def changed_lines(diff: str) -> dict[str, list[tuple[int, int]]]:
    """The new lines of each file of a unified diff. Where lines only went away, the two around them count."""
    found: dict[str, list[tuple[int, int]]] = {}
    file = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            file = line[4:].strip('"').removeprefix("b/").rstrip("\t")
            found.setdefault(file, []) if file != "/dev/null" else None
        elif file in found and (hunk := _HUNK.match(line)):
            first, count = int(hunk.group(1)), int(hunk.group(2) or 1)
            found[file].append((first, first + max(count - 1, 0 if count else 1)))
    return found


def packet(
    report: Report,
    *,
    only: list[str] | None = None,
    delta: Delta | None = None,
    changed: Changed | None = None,
    again: Again | None = None,
    budget_chars: int = BUDGET_CHARS,
) -> str:
    """Within the budget: frames and output are left out first, then whole clusters, and expected and actual never."""
    red = [test for test in report.tests if test.status in RED and (only is None or test.id in only)]
    groups = clusters(red)
    told, left = groups[:_CLUSTERS_MAX], groups[_CLUSTERS_MAX:]
    head = [
        *_head(report, red, delta, concerned=only is not None),
        *(_diagnostic(error) for error in broken(report)[:10]),
    ]
    suspects = _suspects(red, changed or {})
    tail = [*suspects, *_again(told, again), *_left(left)]
    for detail in (3, 2, 1, 0):
        text = _joined(head, [_told(cluster, detail) for cluster in told], tail)
        if len(text) <= budget_chars:
            return text
    while len(told) > 1:
        left, told = [told[-1], *left], told[:-1]
        tail = [*suspects, *_again(told, again), *_left(left)]
        text = _joined(head, [_told(cluster, 0) for cluster in told], tail)
        if len(text) <= budget_chars:
            return text
    return _joined(head, [_told(cluster, 0) for cluster in told], _left(left))


def _joined(*parts: list[str]) -> str:
    return "\n\n".join(text for part in parts for text in part if text)


def _head(report: Report, red: list[TestResult], delta: Delta | None, *, concerned: bool) -> list[str]:
    totals = report.totals
    lines = []
    if not concerned:
        lines.append(
            f"{report.status}: {totals.failed} failed, {totals.errors} errors, {totals.passed} passed,"
            f" {totals.skipped} skipped of {totals.tests} tests ({report.runner})"
        )
    if delta:
        moved = {"new": delta.new_failures, "still": delta.still_failing, "fixed": delta.fixed, "gone": delta.missing}
        moved["renamed"] = [new for _, new in delta.renamed]
        said = [f"{len(ids)} {name}" for name, ids in moved.items() if ids]
        lines += [f"since last time: {', '.join(said)}"] if said else []
    lines += [f"note: {note}" for note in report.notes[:5]]
    if report.status in (ReportStatus.CRASHED, ReportStatus.ERROR) and not red and report.output:
        lines += ["output:", *(f"  | {line}" for line in report.output.splitlines()[-_OUTPUT_LINES:])]
    return ["\n".join(lines)] if lines else []


def _diagnostic(error: Diagnostic) -> str:
    place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
    return f"{place}: {error.type}: {_clipped(error.message, _MESSAGE_CHARS)}"


def _told(cluster: Cluster, detail: int) -> str:
    """`detail` 3 has everything, 2 no output, 1 one frame, 0 no frames."""
    test, *others = cluster.tests
    failure = test.failure or Failure()
    place = f" at {failure.file}:{failure.line}" if failure.file else ""
    lines = [f"{test.id}{place}", f"  {': '.join(filter(None, (failure.type, _message(failure))))}".rstrip()]
    if (expected := wanted(failure)) is not None:
        lines.append(f"  expected: {_clipped(expected, _VALUE_CHARS)}")
    if failure.actual is not None:
        lines.append(f"  actual:   {_clipped(failure.actual, _VALUE_CHARS)}")
    shown = {3: 3, 2: 3, 1: 1, 0: 0}[detail]
    frames = failure.frames[-shown:] if shown else []
    lines += [f"  {frame.file}:{frame.line} in {frame.function}" for frame in frames]
    if detail == 3:
        said = f"{test.stdout}\n{test.stderr}".strip().splitlines()
        lines += [f"  | {line[:200]}" for line in said[-_OUTPUT_LINES:]]
    if others:
        names = ", ".join(other.id for other in others[:2])
        lines.append(f"  the same in {len(others)} more: {names}{', …' if len(others) > 2 else ''}")
    return "\n".join(lines)


def _message(failure: Failure) -> str:
    return _clipped("\n".join(gist(failure)), _MESSAGE_CHARS)


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} … {text[-limit // 3 :]} ({len(text)} characters)"


def _suspects(red: list[TestResult], changed: Changed) -> list[str]:
    """The functions most failures went through: first those at changed lines, then those in changed files. A changed
    file that no failure went through comes last: stacks seldom name the culprit, a change often is it."""
    seen: Counter[tuple[str, str]] = Counter()
    touched: set[tuple[str, str]] = set()
    for test in red:
        frames = [frame for frame in (test.failure.frames if test.failure else []) if frame.file != test.file]
        seen.update({(frame.file, frame.function) for frame in frames})
        touched |= {(frame.file, frame.function) for frame in frames if _is_changed(frame, changed)}
    ranked = sorted(seen, key=lambda at: (at not in touched, at[0] not in changed, -seen[at], at))
    names = [_suspect(at, at in touched, at[0] in changed) for at in ranked]
    tests, walked = {test.file for test in red}, {file for file, _ in seen}
    names += [f"{file} (changed)" for file in sorted(changed) if red and file not in tests | walked]
    return [f"suspects: {'; '.join(names[:_SUSPECTS_MAX])}"] if names else []


def _suspect(at: tuple[str, str], touched: bool, in_changed: bool) -> str:
    file, function = at
    return f"{function} in {file}{' (changed here)' if touched else ' (changed)' if in_changed else ''}"


def _is_changed(frame: Frame, changed: Changed) -> bool:
    return any(first <= frame.line <= last for first, last in changed.get(frame.file, []))


def _again(told: list[Cluster], again: Again | None) -> list[str]:
    command = again(told[0].tests[0]) if told and again else ""
    return [f"run one again: {command}"] if command else []


def _left(left: list[Cluster]) -> list[str]:
    count = sum(len(cluster.tests) for cluster in left)
    return [f"… and {count} more failures"] if count else []
