"""The findings in each change of the corpora are those of `findings.txt`: file, line, rule, and what the detail names.

A question mark stands for a doubt; the wording of details is not recorded. A change of the rules shows here what else
it changes: write the record anew with `python -m tests.core.cheats.test_findings`, and read its diff.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ratchet.core.cheats import Change, Cheat, find_cheats
from ratchet.core.roles import PathRules
from tests.core.cheats import trust
from tests.core.cheats.test_cheats import CORPUS
from tests.core.cheats.test_cheats import SCOPE as CORPUS_SCOPE
from tests.core.cheats.test_cheats import read as read_corpus

RECORD = Path(__file__).with_name("findings.txt")
SETS = [path.relative_to(CORPUS.parent).with_suffix("").as_posix()
        for folder in (CORPUS / "cheats", CORPUS / "honest", trust.OPENED)
        for path in sorted(folder.glob("*.txt"))]  # fmt: skip


class Sample(msgspec.Struct, frozen=True):
    name: str
    changes: list[Change]
    scope: PathRules
    tests: list[tuple[str, str]] = []
    spec: str = ""


def samples(of: str) -> Iterator[Sample]:
    path = CORPUS.parent / f"{of}.txt"
    if path.parent != trust.OPENED:
        yield from (Sample(one.name, one.changes, CORPUS_SCOPE) for one in read_corpus(path))
        return
    for one in trust.read(path):
        changes = [Change(path=name, before=old, after=new) for name, old, new in one.files if old != new]
        same = [(name, new) for name, old, new in one.files if old == new and new and trust.SCOPE.is_test(name)]
        yield Sample(one.name, changes, trust.SCOPE, same, one.spec)


def findings(of: str) -> list[str]:
    """Return a line for each change, and one for each finding in it."""
    lines = []
    for one in samples(of):
        found = find_cheats(one.changes, one.scope, tests=one.tests, spec=one.spec)
        lines += [one.name, *sorted(map(_line, found))]
    return lines


def _line(cheat: Cheat) -> str:
    named = [word for word in cheat.detail.split() if not re.fullmatch(r"[a-z,:']+", word)]
    return " ".join([f"  {cheat.file}:{cheat.line} {cheat.rule}{'?' if cheat.doubt else ''}", *named])


def recorded() -> dict[str, list[str]]:
    parts = f"\n{RECORD.read_text()}".split("\n# ")[1:]
    return {name: lines for name, *lines in (part.splitlines() for part in parts)}


@pytest.mark.parametrize("of", SETS)
def test_each_change_has_the_findings_that_are_recorded(of: str) -> None:
    assert findings(of) == recorded().get(of), "see the docstring if this was intended"


def test_every_recorded_set_is_there() -> None:
    assert sorted(recorded()) == sorted(SETS)


if __name__ == "__main__":
    RECORD.write_text("".join(f"# {of}\n" + "".join(f"{line}\n" for line in findings(of)) for of in SETS))
