"""Rates of cheat detection by language and class, on three sets: `make trust [FRESH=folder] [PUBLIC=folder]`.

The regression suite is what the rules are tuned to: its rates say only that nothing was lost. FRESH holds changes that
were written without looking at the rules, in the format of `fresh/`. Those in `fresh/` have been opened and count as
regression since. What was found of each when it was opened, by the rules of that moment:

| set | cheats found | honest refused | honest in doubt | opened (UTC) |
|---|---:|---:|---:|---|
| A and B, by us | made the rules | | | 2026-11-18 21:16 |
| D, by a stranger | 51 of 80 (64 %) | 2 of 80 | 23 of 80 | 2026-11-19 03:51 |
| E, by a second one | 45 of 60 (75 %) | 0 of 60 | 14 of 60 | 2026-11-19 04:10 |
| F, by a third one | 41 of 50 (82 %) | 0 of 50 | 10 of 50 | 2026-11-19 04:43 |
| G, by a fourth one | 55 of 60 (92 %) | 1 of 50 | 13 of 50 | 2026-11-19 05:11 |
| K, by us, in languages seldom seen | 29 of 45 (64 %) | 0 of 12 | 2 of 12 | 2026-11-19 14:51 |
| H, by a fifth one | 101 of 120 (84 %) | 3 of 120 | 38 of 120 | 2026-11-19 15:18 |
| I, by a sixth one | 57 of 60 (95 %) | 1 of 60 | 32 of 60 | 2026-11-19 16:12 |

PUBLIC holds bare git repositories: commits of theirs that change tests and source, with their messages as specs, should
not be refused. Of 360 in twelve repositories 13 (3.6 %) were refused when they were first read, and 15 (4.3 %) of 348
in twelve others; 8 (2.2 %) and 10 (2.9 %) after the rules about rows, examples, build tags and equality were mended.
Of 657 in a third set of 28, 31 (4.7 %) at first, 16 (2.4 %) after those about generated lines, helpers, negated
comparisons, strategies and literals that the source had; of these 16, most do remove a test or an assertion.
Of 319 in a fourth set of twelve, 13 (4.1 %) at first, 10 (3.1 %) after words of the spec were added; most of the 13 do
remove tests or assertions that their messages do not mention.
Nothing of PUBLIC is written anywhere.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from ratchet.core.cheats import Change, find_cheats
from ratchet.core.roles import PathRules
from tests.core.cheats.test_cheats import CHEATS, HONEST
from tests.core.cheats.test_cheats import SCOPE as SUITE_SCOPE

OPENED = Path(__file__).parent / "fresh"
SCOPE = PathRules(
    tests=(
        *("tests/**", "test/**", "**/tests/**", "**/test/**", "spec/**", "Tests/**", "**/*Tests*/**", "**/*_test.go"),
        *(
            "**/*.test.*",
            "**/*.spec.*",
            "**/*_test.exs",
            "**/testdata/**",
            "t/**",
            "**/__tests__/**",
            "**/__snapshots__/**",
        ),
        *("conftest.py", "**/conftest.py"),
    )
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|[\w.]*Tests?)/|_test\.(?:go|exs)$|\.(?:test|spec)\.\w+$|_spec\.rb$|Test\.\w+$"
)
_CODE = re.compile(r"\.(?:py|[cm]?js|tsx?|go|rs|java|rb|cs|cc|cpp|h|c|php|exs?|kt|swift)$")
_LOOKED_AT = 1800
_FILES_MAX = 25


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str  # cheat or honest
    of: str  # the class
    language: str
    spec: str
    files: list[tuple[str, str | None, str | None]]


def read(path: Path) -> list[Sample]:
    """`@@ id kind class language`, `spec: …`, then `file PATH` with its lines as in a diff."""
    return [_sample(block) for block in re.split(r"^@@ ", path.read_text(), flags=re.M)[1:]]


def _sample(block: str) -> Sample:
    head, _, rest = block.partition("\n")
    name, kind, of, language = head.split()
    spec, *files = re.split(r"^file ", rest, flags=re.M)
    return Sample(
        name=name,
        kind=kind,
        of=of,
        language=language,
        spec=spec.removeprefix("spec: ").strip(),
        files=[_file(text) for text in files],
    )


def _file(text: str) -> tuple[str, str | None, str | None]:
    path, *lines = text.rstrip("\n").split("\n")
    before, after = ([line[1:] for line in lines if not line.startswith(mark)] for mark in "+-")
    return path, _joined(before), _joined(after)


def _joined(lines: list[str]) -> str | None:
    return "\n".join(lines) + "\n" if lines else None


class Tally:
    """Counts of hard findings, doubts and none, by language and by class."""

    def __init__(self) -> None:
        self.all: Counter[str] = Counter()
        self.by: dict[str, Counter[str]] = defaultdict(Counter)

    def add(self, how: str, *groups: str) -> None:
        self.all[how] += 1
        for group in groups:
            self.by[group][how] += 1

    def show(self, title: str) -> None:
        print(f"{title}: {_line(self.all)}")
        for group in sorted(self.by):
            print(f"  {group:<28}{_line(self.by[group])}")


def _line(counts: Counter[str]) -> str:
    total = counts.total() or 1
    shares = (f"{how} {counts[how]} ({100 * counts[how] / total:.1f} %)" for how in ("hard", "doubt", "none"))
    return f"{counts.total()}: {', '.join(shares)}"


def judge(files: Iterable[tuple[str, str | None, str | None]], spec: str, scope: PathRules) -> str:
    changes = [Change(path=path, before=before, after=after) for path, before, after in files if before != after]
    tests = [(path, after) for path, before, after in files if before == after and after and scope.is_test(path)]
    found = find_cheats(changes, scope, tests=tests, spec=spec)
    return "hard" if any(not cheat.doubt for cheat in found) else "doubt" if found else "none"


def regression() -> None:
    for title, samples in (("regression suite, cheats", CHEATS), ("regression suite, honest changes", HONEST)):
        tally = Tally()
        for sample in samples:
            files = [(change.path, change.before, change.after) for change in sample.changes]
            language = sample.name.partition(":")[0].removeprefix("fresh-")
            tally.add(judge(files, "", SUITE_SCOPE), language, *([f"[{sample.rule}]"] if sample.rule else []))
        tally.show(title)


def fresh(folder: Path) -> None:
    samples = [sample for path in sorted(folder.glob("*.txt")) for sample in read(path)]
    for kind in ("cheat", "honest"):
        tally = Tally()
        for sample in (one for one in samples if one.kind == kind):
            tally.add(judge(sample.files, sample.spec, SCOPE), sample.language, f"[{sample.of}]")
        tally.show(f"{folder.name}, {kind}")


# --- public commits -------------------------------------------------------------------------------------------------


def public(folder: Path, per_repository: int) -> None:
    tally = Tally()
    for place in sorted({*folder.glob("*.git"), *folder.glob("*/repo"), *folder.glob("*/*.git")}):
        name = place.parent.name if place.name == "repo" else place.name
        git_dir = inner if (inner := place / ".git").is_dir() else place
        for files, message in _commits(git_dir, place.parent.name, per_repository):
            tally.add(judge(files, message, SCOPE), name)
    tally.show("public commits")


def _commits(place: Path, seed: str, count: int) -> Iterator[tuple[list[tuple[str, str | None, str | None]], str]]:
    """Commits that change tests and source, always the same ones."""
    commits = _git(place, "log", "--no-merges", "--format=%H", "-n", str(_LOOKED_AT)).split()
    random.Random(seed).shuffle(commits)  # the same sample in every run
    for commit in commits:
        paths = _git(place, "diff-tree", "--no-commit-id", "--name-only", "-r", "--no-renames", commit).splitlines()
        code = [path for path in paths if _CODE.search(path)]
        mixed = any(path.endswith(".rs") for path in code)
        sources, tests = (
            [path for path in code if not _TEST.search(path)],
            [path for path in code if _TEST.search(path)],
        )
        if not sources or not (tests or mixed) or len(paths) > _FILES_MAX:
            continue
        if (message := _git(place, "log", "-1", "--format=%B", commit).strip()) and count > 0:
            files = [(path, _show(place, f"{commit}^", path), _show(place, commit, path)) for path in paths]
            yield [one for one in files if not any(side and "\0" in side for side in one[1:])], message
            count -= 1


def _git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", "--git-dir", place, *words], capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""


def _show(place: Path, commit: str, path: str) -> str | None:
    done = subprocess.run(["git", "--git-dir", place, "show", f"{commit}:{path}"], capture_output=True, check=False)
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", type=Path, help="folder of fresh changes")
    parser.add_argument("--public", type=Path, help="folder of bare git repositories")
    parser.add_argument("--commits", type=int, default=27, help="commits of each repository")
    given = parser.parse_args()
    regression()
    fresh(OPENED)
    if given.fresh:
        fresh(given.fresh)
    if given.public:
        public(given.public, given.commits)


if __name__ == "__main__":
    main()
