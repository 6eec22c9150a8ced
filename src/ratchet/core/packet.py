"""What an agent is told about a test run: the failures, whole expected and actual, never a raw log."""

from __future__ import annotations

from ratchet.core.report import RED, Failure, Report, TestResult, broken

BUDGET_CHARS = 4_000


def packet(report: Report, *, only: list[str] | None = None, budget_chars: int = BUDGET_CHARS) -> str:
    """Failures in a stable order, the broken files first; what does not fit is counted, not cut mid-way."""
    parts = [f"{e.file}:{e.line}: {e.type}: {e.message}".strip() for e in broken(report)]
    red = [test for test in report.tests if test.status in RED and (only is None or test.id in only)]
    parts += [_failure(test) for test in sorted(red, key=lambda test: test.id)]
    kept: list[str] = []
    for part in parts:
        if kept and sum(map(len, kept)) + len(part) > budget_chars:
            break
        kept.append(part)
    left = len(parts) - len(kept)
    return "\n\n".join([*kept, *([f"… and {left} more failures"] if left else [])])


def _failure(test: TestResult) -> str:
    failure = test.failure or Failure()
    place = f" at {failure.file}:{failure.line}" if failure.file else ""
    lines = [f"{test.id}{place}", f"  {failure.type}: {failure.message}".rstrip(": ")]
    if failure.expected is not None:
        lines.append(f"  expected: {failure.expected}")
    if failure.actual is not None:
        lines.append(f"  actual:   {failure.actual}")
    lines += [f"  {frame.file}:{frame.line} in {frame.function}" for frame in failure.frames[-3:]]
    return "\n".join(lines)
