"""The packet: a test run summarised for an agent as delta, clustered failures, and expected and actual values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise

import msgspec

from ratchet.core.compare import Delta
from ratchet.core.diffs import read_diff
from ratchet.core.lines import split_lines
from ratchet.core.report import (
    RED,
    Diagnostic,
    Failure,
    Frame,
    Report,
    ReportStatus,
    TestResult,
    expected_text,
    load_errors,
    message_lines,
)

BUDGET_BYTES = 4_000
_CLUSTERS_MAX = 5
_MESSAGE_CHARS = 300
_VALUE_CHARS = 1_200
_SHORT_CHARS = 300
_TURN = {"new": 0, "": 1, "flaky": 2, "known": 3}
_NAME_CHARS = 300
_NAMES_MAX = 8
_OUTPUT_LINES = 10
_SUSPECTS_MAX = 5
_DIAGNOSTICS_MAX = 10
_ALIKE_MAX = 3
Again = Callable[[TestResult], str]
# Changed line ranges per file; a file without ranges is changed as a whole.
Changed = Mapping[str, list[tuple[int, int]]]


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Failures with the same type and location: the first is shown in full, the others by name."""

    key: tuple[str, str]
    tests: list[TestResult]


def clusters(tests: Iterable[TestResult]) -> list[Cluster]:
    """Group failures by type and deepest project frame, largest first and in a stable order."""
    found: dict[tuple[str, str], list[TestResult]] = {}
    for test in sorted(tests, key=lambda test: test.id):
        found.setdefault(_key(test), []).append(test)
    made = [Cluster(key=key, tests=_most_informative_first(same)) for key, same in found.items()]
    return sorted(made, key=lambda cluster: (-len(cluster.tests), cluster.key, cluster.tests[0].id))


def _most_informative_first(tests: list[TestResult]) -> list[TestResult]:
    """Sort tests with values first, and groups after the tests in them, which have the actual failure."""
    groups = {test.id for test, after in pairwise(tests) if after.id.startswith(test.id)}
    return sorted(tests, key=lambda test: (not test.failure or test.failure.actual is None, test.id in groups))


def _key(test: TestResult) -> tuple[str, str]:
    failure = test.failure or Failure()
    place = f"{failure.file}:{failure.line}" if failure.file else _shape(failure.message)
    return failure.type, place or test.id  # without message or location, each failure is its own cluster


def _shape(message: str) -> str:
    return re.sub(r"\d+", "0", split_lines(message.strip())[0] if message.strip() else "")[:80]


def changed_ranges(diff: str) -> dict[str, list[tuple[int, int]]]:
    """Return the changed line ranges per file of a unified diff; for a pure deletion, the two lines around it."""
    found: dict[str, list[tuple[int, int]]] = {}
    for file in read_diff(diff):
        if file.hunks and not file.removed:
            ranges = [(hunk.first, hunk.first + max(hunk.count - 1, 0 if hunk.count else 1)) for hunk in file.hunks]
            found.setdefault(file.path, []).extend(ranges)
    return found


def packet(
    report: Report,
    *,
    only: list[str] | None = None,
    delta: Delta | None = None,
    flaky: Collection[str] = (),
    known: Collection[str] = (),
    changed: Changed | None = None,
    again: Again | None = None,
    whole: str = "",
    budget_bytes: int = BUDGET_BYTES,
) -> str:
    """Render a packet within the budget: omit frames and output first, then equal parts of long values, then whole
    clusters, new failures last. `known` failures are older than the change, `flaky` ones unrelated to it; `whole` is
    the command that shows everything."""
    red = [test for test in report.tests if test.status in RED and (only is None or test.id in only)]
    delta = _with_added(delta, red)
    marks = _marks(delta, flaky, known)
    groups = sorted(clusters(red), key=lambda cluster: min(_TURN[marks.get(test.id, "")] for test in cluster.tests))
    head = [
        *_head(report, red, delta, marks, concerned=only is not None),
        *_diagnostics(load_errors(report)),
    ]
    suspects = _suspects(red, changed or {})
    for count, detail, limit, rest in _shrinking_limits(len(groups)):
        shown, left = groups[:count], groups[count:]
        short = count < len(groups) or rest < _VALUE_CHARS
        tail = [*(suspects if limit == _VALUE_CHARS else []), *_rerun_hint(shown, again), *_omitted(left)]
        tail += [f"all of it: {whole}"] * (short and bool(whole))
        limits = [limit, *[rest] * count]
        text = _joined(
            head, [_render_cluster(each, marks, detail, most) for each, most in zip(shown, limits, strict=False)], tail
        )
        if len(text.encode()) <= budget_bytes:
            return text
    return text.encode()[: budget_bytes - 4].decode(errors="ignore") + "…"


def _shrinking_limits(groups: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield decreasing limits: clusters, detail, characters per value of the first cluster and of the others."""
    most, whole = min(groups, _CLUSTERS_MAX), _VALUE_CHARS
    yield from ((most, detail, whole, whole) for detail in (3, 2, 1, 0))
    yield from ((most, 0, whole, rest) for rest in (whole // 2, _SHORT_CHARS))
    yield from ((count, 0, whole, _SHORT_CHARS) for count in range(most - 1, 0, -1))
    yield from ((min(most, 1), 0, limit, limit) for limit in (_SHORT_CHARS, _SHORT_CHARS // 3))


def _with_added(delta: Delta | None, red: list[TestResult]) -> Delta | None:
    """Count added tests that fail as newly failing."""
    added = {test.id for test in red}.intersection(delta.added) if delta else ()
    return msgspec.structs.replace(delta, new_failures=sorted({*delta.new_failures, *added})) if delta else None


def _marks(delta: Delta | None, flaky: Collection[str], known: Collection[str]) -> dict[str, str]:
    new = dict.fromkeys(delta.new_failures if delta else [], "new")
    return new | dict.fromkeys(known, "known") | dict.fromkeys(flaky, "flaky")


def _joined(*parts: list[str]) -> str:
    return "\n\n".join(text for part in parts for text in part if text)


def _head(
    report: Report, red: list[TestResult], delta: Delta | None, marks: Mapping[str, str], *, concerned: bool
) -> list[str]:
    lines = [] if concerned else [f"{report.status}: {_counts(report)} ({report.runner})"]
    moved = {"newly failing": delta.new_failures, "still failing": delta.still_failing} if delta else {}
    moved |= (
        {"fixed": delta.fixed, "gone": delta.missing, "renamed": [new for _, new in delta.renamed]} if delta else {}
    )
    counts = [f"{len(ids)} {name}" for name, ids in moved.items() if ids]
    lines += [f"since last time: {', '.join(counts)}"] if counts else []
    kinds = Counter(marks[test.id] for test in red if marks.get(test.id, "new") != "new")
    kinds["hung"] = sum(test.failure is not None and test.failure.type == "Hung" for test in red)
    lines += [f"of the failures {', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()) if n)}"] * any(
        kinds.values()
    )
    lines += [f"note: {_clip(note, _NAME_CHARS)}" for note in report.notes[:5]]
    if report.status in (ReportStatus.CRASHED, ReportStatus.ERROR) and not red and report.output:
        output = split_lines(report.output)[-_OUTPUT_LINES:]
        lines += ["output:", *(f"  | {_clip(line, _NAME_CHARS)}" for line in output)]
    return ["\n".join(lines)] if lines else []


def _counts(report: Report) -> str:
    totals = msgspec.structs.asdict(report.totals)
    seldom = {"xfailed": "expected to fail", "xpassed": "unexpectedly passed", "todo": "to do"}
    named = {name: name for name in ("failed", "errors", "passed", "skipped")}
    named |= {name: words for name, words in seldom.items() if totals[name]}
    parts = [
        f"{totals[name]} {'error' if words == 'errors' and totals[name] == 1 else words}"
        for name, words in named.items()
    ]
    counts = f"{', '.join(parts)} of {totals['tests']} tests"
    loaded = {test.file for test in report.tests} | {""}
    beside = sum(error.file in loaded for error in report.collection_errors)
    more = {
        "file@ not compiled": len({error.file for error in report.compile_errors}),
        "file@ not loaded": len({error.file for error in report.collection_errors} - loaded),
        "error@ outside of tests": beside,
    }
    return counts + "".join(f", {n} {what.replace('@', 's'[: n != 1])}" for what, n in more.items() if n)


def _diagnostics(errors: list[Diagnostic]) -> list[str]:
    """Group equal errors: one module that does not load breaks many files."""
    alike: dict[tuple[str, str], list[Diagnostic]] = {}
    for error in errors:
        alike.setdefault((error.type, error.message), []).append(error)
    groups = list(alike.values())
    left = sum(len(group) for group in groups[_DIAGNOSTICS_MAX:])
    rows = [_diagnostic(first) + same_error_in(others, "\n  ") for first, *others in groups[:_DIAGNOSTICS_MAX]]
    return [*rows, *([f"… and {left} more errors of files"] if left else [])]


def same_error_in(others: list[Diagnostic], sign: str = "; ") -> str:
    """Name the other files with the same error."""
    files = list(dict.fromkeys(error.file for error in others if error.file))
    more = f" and {len(files) - _ALIKE_MAX} more" if len(files) > _ALIKE_MAX else ""
    names = ", ".join(_clip(file, _NAME_CHARS) for file in files[:_ALIKE_MAX])
    return f"{sign}the same for {names}{more}" if files else ""


def _diagnostic(error: Diagnostic) -> str:
    place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
    return ": ".join(filter(None, (place, error.type, _clip(error.message, _MESSAGE_CHARS))))


def _render_cluster(cluster: Cluster, marks: Mapping[str, str], detail: int, limit: int) -> str:
    """Render a cluster. `detail`: 3 everything, 2 no output, 1 one frame, 0 no frames; `limit` is per value."""
    test, *others = cluster.tests
    failure = test.failure or Failure()
    place = f" at {failure.file}:{failure.line}" if failure.file else ""
    mark = f" ({marks[test.id]})" if test.id in marks else ""
    lines = [f"{_clip(test_title(test), _NAME_CHARS)}{place}{mark}", f"  {_message(failure, limit)}"]
    lines += [f"  {name:<9} {value}" for name, value in _values(failure, limit)]
    shown = {3: 3, 2: 3, 1: 1, 0: 0}[detail]
    frames = failure.frames[-shown:] if shown else []
    lines += [f"  {frame.file}:{frame.line}{f' in {frame.function}' if frame.function else ''}" for frame in frames]
    if detail == 3:
        output = output_beyond_failure(f"{test.stdout}\n{test.stderr}", failure)
        lines += [f"  | {line[:200]}" for line in output[-_OUTPUT_LINES:]]
    if others:
        names = ", ".join(_clip(other.id, _NAME_CHARS // 3) for other in others[:2])
        lines.append(f"  the same in {len(others)} more: {names}{', …' if len(others) > 2 else ''}")
    return "\n".join(line for line in lines if line.strip())


_PANIC = re.compile(r"\s*thread '.*' (?:\(\d+\) )?panicked at |\s*note: run with `RUST_BACKTRACE")


def output_beyond_failure(text: str, failure: Failure) -> list[str]:
    """Return the output without lines that repeat the failure, as Go and Rust print them."""
    known = {line.strip() for line in split_lines(failure.message)} - {""}
    ends = tuple(f": {part}" for part in (*known, failure.expected, failure.actual) if part)

    def is_repeated(line: str) -> bool:
        return line.strip() in known or bool(ends and line.rstrip().endswith(ends)) or bool(_PANIC.match(line))

    lines = split_lines(text.strip("\n"))
    rest = [line for line in lines if not is_repeated(line)]
    return rest if any(line.strip() for line in rest) else []


def test_title(test: TestResult) -> str:
    """Return the id, with the name if the id does not contain it (RSpec ids are numbers)."""
    words = re.sub(r"\W|_", "", test.name)
    return test.id if not words or words in re.sub(r"\W|_", "", test.id) else f"{test.id} ({test.name})"


def _values(failure: Failure, limit: int) -> Iterator[tuple[str, str]]:
    expected, actual = expected_text(failure), failure.actual
    if expected is not None and actual is not None:
        expected, actual = difference_window(expected, actual, limit)
    if expected is not None:
        yield "expected:", _clip(expected, limit + _NAME_CHARS)
    if actual is not None:
        yield "actual:", _clip(actual, limit + _NAME_CHARS)


def difference_window(expected: str, actual: str, limit: int) -> tuple[str, str]:
    """Shorten two long values to the part around their first difference."""
    if max(len(expected), len(actual)) <= limit:
        return expected, actual
    pairs = enumerate(zip(expected, actual, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(expected), len(actual)))
    begin = max(0, same - limit // 3)
    return _window(expected, begin, limit), _window(actual, begin, limit)


def _window(text: str, begin: int, limit: int) -> str:
    before = f"… ({begin} characters) " if begin else ""
    after = len(text) - begin - limit
    return f"{before}{text[begin : begin + limit]}{f' … ({after} characters)' if after > 0 else ''}"


def _message(failure: Failure, limit: int) -> str:
    text = _clip("\n".join(message_lines(failure)), min(limit, _MESSAGE_CHARS))
    return ": ".join(filter(None, (failure.type, text))).rstrip(": ")


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} … {text[-limit // 3 :]} ({len(text)} characters)"


def _suspects(red: list[TestResult], changed: Changed) -> list[str]:
    """Rank functions by the number of failures through them: changed lines first, then changed files. Changed files
    without a frame come last: the stack often misses the cause, and the change often is it."""
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


def _rerun_hint(shown: list[Cluster], again: Again | None) -> list[str]:
    command = again(shown[0].tests[0]) if shown and again else ""
    return [f"run one again: {command}"] if command and len(command) <= _VALUE_CHARS else []


def _omitted(left: list[Cluster]) -> list[str]:
    names = [test.id for cluster in left for test in cluster.tests]
    if not names:
        return []
    shown = ", ".join(_clip(name, _NAME_CHARS // 3) for name in names[:_NAMES_MAX])
    return [f"… and {len(names)} more failures: {shown}{', …' if len(names) > _NAMES_MAX else ''}"]
