"""Parses the tasks of a spec: `- [ ]` items and `### T001:` blocks with `Verify:` commands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from ratchet.core.lines import split_lines


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """`verify` is a command that the factory runs; `done` tasks were finished before the run began."""

    id: str
    title: str
    body: str = ""
    verify: str = ""
    done: bool = False


_BLOCK = re.compile(r"^(#{2,6})\s+(T\d+):\s*(.*?)\s*#*$")
_HEADING = re.compile(r"^(#{1,6})\s")
_BOX = re.compile(r"^\s*[-*+]\s+\[([ xX])\]\s+(.+?)\s*$")
_VERIFY = re.compile(r"^\s*(?:[-*+]\s+)?\**Verify:?\**:?\s*(.+?)\s*$", re.IGNORECASE)
_STATUS = re.compile(r"^\s*(?:[-*+]\s+)?\**Status:?\**:?\s*(\w+)", re.IGNORECASE)
_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_FINISHED = ("passed", "done", "completed")


def parse_tasks(spec: str) -> list[Task]:
    """Return the spec's blocks, else its checkboxes; a spec without tasks is a single task."""
    rows = list(_outside_fences(spec))
    found = list(_blocks(rows)) or list(_boxes(rows))
    return list(_unique_ids(found)) or [Task(id="all", title="the whole spec")]


def _unique_ids(tasks: list[Task]) -> Iterator[Task]:
    """Number repeated ids: finished tasks are recorded by id."""
    seen: Counter[str] = Counter()
    for task in tasks:
        seen[task.id] += 1
        again = seen[task.id] > 1
        yield msgspec.structs.replace(task, id=f"{task.id}-{seen[task.id]}") if again else task


def _outside_fences(spec: str) -> Iterator[str]:
    """Yield the lines, with code blocks blanked: a checklist in an example is not a checklist."""
    fence = ""
    for line in split_lines(spec):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark.group(1)
        elif mark and mark.group(1).startswith(fence):
            fence = ""
        elif not fence:
            yield line
            continue
        yield ""


def _blocks(rows: list[str]) -> Iterator[Task]:
    starts = [(n, match) for n, row in enumerate(rows) if (match := _BLOCK.match(row))]
    for n, match in starts:
        body = list(_until_heading(rows[n + 1 :], len(match.group(1))))
        status = next((found.group(1).lower() for row in body if (found := _STATUS.match(row))), "")
        yield Task(
            id=match.group(2),
            title=match.group(3)[:200],
            body="\n".join(body).strip()[:4000],
            verify=_verify(body),
            done=status in _FINISHED,
        )


def _until_heading(rows: list[str], level: int) -> Iterator[str]:
    for row in rows:
        heading = _HEADING.match(row)
        if heading and len(heading.group(1)) <= level:
            return
        yield row


def _boxes(rows: list[str]) -> Iterator[Task]:
    boxes = [(n, match) for n, row in enumerate(rows) if (match := _BOX.match(row))]
    ends = [*(n for n, _ in boxes), len(rows)][1:]
    for count, ((n, match), end) in enumerate(zip(boxes, ends, strict=True), start=1):
        below = [row for row in rows[n + 1 : end] if row.startswith((" ", "\t"))]
        yield Task(
            id=f"task-{count}",
            title=match.group(2)[:200],
            body="\n".join(below).strip()[:4000],
            verify=_verify(below),
            done=match.group(1) != " ",
        )


def _verify(rows: list[str]) -> str:
    found = next((match.group(1) for row in rows if (match := _VERIFY.match(row))), "")
    return found.strip("`").strip()
