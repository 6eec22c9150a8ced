"""Represents tests by what they check, in the same way for every language, and finds what was removed between two
trees."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from http import HTTPStatus

import msgspec

from ratchet.core.cheats.findings import Cheat

ERROR_OF = "the error of "  # a subject: the call raised no error
EXACT_ENOUGH = 1e-5  # the default tolerance of `approx` and similar functions: floats are compared with it


AROUND = "what stands around the tests"  # helpers, hooks, and tests of a kind that is not known


class AssertionStrength(IntEnum):
    """How much an assertion checks."""

    NOTHING = 0  # always true: `assert True`, `x == x`, swallowed, never reached
    SOMETHING = 1  # a value exists, or has a type
    PARTLY = 2  # contains, greater than, approximately, any error
    EXACTLY = 3


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` is the checked expression and `expected` its value, both as text without spaces. `literal`: the
    expected value is written out. `loose` grows with the tolerance."""

    line: int
    subject: str
    strength: AssertionStrength
    expected: str = ""
    literal: bool = False
    loose: float = 0.0


class TestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test. `disabled` is what keeps it from running; `rows` are the literal parameters it is repeated with;
    `words` are all its literals, `names` all its names. An `example` is documentation as well."""

    file: str
    name: str
    line: int
    asserts: list[Assertion]
    last_line: int = 0
    disabled: str = ""
    rows: list[tuple[str, ...]] = []
    words: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    example: bool = False


class TestContext(msgspec.Struct, frozen=True, kw_only=True):
    """What else changed. `words` and `names` are on added lines of test files; `vanished` are names that the sources no
    longer define; `helpers` are functions that assert for tests, `silent` those that do not; `asserted` are new subjects and expected values."""

    words: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    vanished: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    asserted: frozenset[tuple[str, str]] = frozenset()
    spec: str = ""

    def speaks_of(self, name: str) -> bool:
        """Whether what was asked has two words of this name, or the only one."""
        parts = re.findall(r"[A-Z]?[a-z]{3,}|[A-Z]{3,}", name)
        words = {part.lower() for part in parts} - _SAYING_NOTHING
        spoken = {word for word in words if word in self.spec.lower()}
        return bool(spoken) and len(spoken) >= min(2, len(words))

    def asks_for(self, expected: str) -> bool:
        """Return whether the spec names this value. A single digit is everywhere and does not count."""
        values, spec = [word.strip("\"'") for word in written(expected)], "".join(self.spec.split())
        return bool(values) and all(len(value) > 1 and "".join(value.split()) in spec for value in values)


_SAYING_NOTHING = {
    "test",
    "tests",
    "should",
    "with",
    "when",
    "that",
    "does",
    "from",
    "then",
    "case",
    "will",
    "given",
    "returns",
    "return",
}


def compare_cases(
    before: Sequence[TestCase], after: Sequence[TestCase], unread: set[str], around: TestContext
) -> list[Cheat]:
    helpers = [(was, now) for was in before for now in after if was.name == now.name == AROUND and was.file == now.file]
    before, after = ([case for case in side if case.name != AROUND] for side in (before, after))
    old, new = _by_name(before), _by_name(after)
    gone = [old[name] for name in old.keys() - new.keys() if old[name].file not in unread]
    fresh = [new[name] for name in new.keys() - old.keys()]
    pairs = [(old[name], new[name]) for name in old.keys() & new.keys()]
    live = [case for case in fresh if not case.disabled]
    found = []
    around = msgspec.structs.replace(
        around,
        words=around.words.union(*(case.words for case in live)),
        names=around.names.union(*(case.names for case in live)),
        asserted=frozenset(_all_asked(after) - _all_asked(before)),
    )
    for case in sorted(gone, key=lambda case: (case.file, case.line)):
        if heir := _successor(case, fresh):
            fresh.remove(heir)
            pairs.append((case, heir))
        elif not (case.names & around.vanished or _covered_elsewhere(case, after, around)):
            found.append(
                _cheat(
                    case,
                    "test-removed",
                    f"{case.name} is gone",
                    doubt=case.example or _made_anew(case, gone, fresh) or around.speaks_of(case.name),
                )
            )
    for was, now in pairs:
        found += _weakened(was, now, around)
    found += [cheat for was, now in helpers for cheat in _weakened_helpers(was, now, around)]
    return [*found, *(cheat for case in fresh for cheat in _without_assertions(case))]


def _weakened_helpers(was: TestCase, now: TestCase, around: TestContext) -> list[Cheat]:
    """Assertions that are lost outside of tests; what a helper is for is not known, so each is a doubt."""
    return [msgspec.structs.replace(cheat, doubt=True) for cheat in _assertions(was, now, around)]


def _all_asked(cases: Sequence[TestCase]) -> Counter[tuple[str, str]]:
    alive = [a for case in cases if not case.disabled for a in case.asserts if a.strength > AssertionStrength.SOMETHING]
    return Counter((a.subject, a.expected) for a in alive if a.expected)


def _made_anew(case: TestCase, gone: Sequence[TestCase], fresh: Sequence[TestCase]) -> bool:
    """Return whether new tests of the same file check at least as much as those removed from it."""
    lost, made = (
        sum(a.strength for one in many if one.file == case.file for a in one.asserts) for many in (gone, fresh)
    )
    return made >= lost > 0 or (not case.asserts and made > 0)


def _by_name(cases: Iterable[TestCase]) -> dict[tuple[str, str], TestCase]:
    return {(case.file, case.name): case for case in cases}


def _successor(gone: TestCase, fresh: Sequence[TestCase]) -> TestCase | None:
    """Return a new test with the same checks: renamed, moved to another file, or of renamed code."""
    asked, values = _asked(gone), _values(gone)
    same = [case for case in fresh if asked and _asked(case) == asked]
    same = same or [
        case for case in fresh if values and _values(case) == values and len(case.asserts) == len(gone.asserts)
    ]
    return next((case for case in same if case.name == gone.name), same[0] if same else None)


def _asked(case: TestCase) -> Counter[tuple[str, str]]:
    return Counter((a.subject, a.expected) for a in case.asserts)


def _values(case: TestCase) -> list[tuple[list[str], AssertionStrength]]:
    """Return the literals of each assertion, whatever the names are."""
    found = [(sorted(written(f"{a.subject} {a.expected}")), a.strength) for a in case.asserts]
    return found if any(values for values, _ in found) else []


def _covered_elsewhere(gone: TestCase, after: Sequence[TestCase], around: TestContext) -> bool:
    """Return whether all literals of a test are now checked elsewhere: tests were merged or split."""
    formats = {word for word in gone.words if re.search(r"%[-+#]?[vqsdxTf]", word)}  # a message, not a value
    values = gone.words - {repr(gone.name), f'"{gone.name}"'} - formats
    alive = any(
        not case.disabled and any(a.strength is AssertionStrength.EXACTLY for a in case.asserts) for case in after
    )
    spoken = {name for a in gone.asserts for name in _called(a.subject)}
    return alive and bool(values) and values <= around.words and spoken <= around.names | around.helpers


_WRITTEN = re.compile(r"""(?<![\w.])-?\d+(?:\.\d+)?|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")


_STATUSES = {status.name.lower().replace("_", ""): str(status.value) for status in HTTPStatus}
# `http.StatusNotFound`, `HttpStatus.NOT_FOUND`, `StatusCode::NOT_FOUND` are written as 404 elsewhere.
_STATUS = re.compile(
    rf"\b(?:Http)?Status(?:Code)?s?(?:\.|::)?_?({'|'.join(status.name.replace('_', '_?') for status in HTTPStatus)})\b",
    re.IGNORECASE,
)


def written(text: str) -> list[str]:
    """Return the literals of a test, independent of their quotes."""
    named = (_STATUSES[found[1].lower().replace("_", "")] for found in _STATUS.finditer(text))
    return [*(f"'{word[1:-1]}'" if word[0] in "\"'" else word for word in _WRITTEN.findall(text)), *named]


def _called(subject: str) -> list[str]:
    return re.findall(r"([A-Za-z_]\w*)\(", re.sub(r"\bnew(?=[A-Z])", "", subject))


# --- the same test, before and after ------------------------------------------------------------------------------


def _weakened(was: TestCase, now: TestCase, around: TestContext) -> list[Cheat]:
    if now.disabled and not was.disabled:
        return [
            _cheat(
                now,
                "test-disabled",
                f"{now.name}: {now.disabled}",
                doubt=now.disabled.startswith(("returns early on", "#[cfg(", "skipped on a condition")),
            )
        ]
    found = [*_assertions(was, now, around), *_rows(was, now, around)]
    doubtful = _asks_of_other(was, now) or _asks_helper(was, now, around)
    return [msgspec.structs.replace(cheat, doubt=True) for cheat in found] if doubtful else found


# A function that asserts by its name, and is none of an assertion library.
_HELPER = re.compile(
    r"(?:assert|check|verify|expect)_(?!(?:eq|ne|equals?|not|called|any|has|true|false|is|in|raises|warns|all|array|frame|series|match\w*)(?:_|$))\w+$"
)


def _asks_helper(was: TestCase, now: TestCase, around: TestContext) -> bool:
    """Return whether the test calls a helper that it did not call before: what that checks is not compared."""
    fresh = now.names - was.names - around.silent
    return bool(fresh & around.helpers) or (now.file.endswith(".py") and any(map(_HELPER.match, fresh)))


def _asks_of_other(was: TestCase, now: TestCase) -> bool:
    """Return whether the test now does something else and checks new values: it may have been rewritten."""
    strong = [a for a in now.asserts if a.strength is AssertionStrength.EXACTLY and a.expected]
    known = {word for value in was.words for word in written(value)} | {
        word for a in was.asserts for word in written(f"{a.subject} {a.expected}")
    }
    return any(set(written(a.expected)) - known for a in strong)


def _assertions(was: TestCase, now: TestCase, around: TestContext) -> list[Cheat]:
    """Compare assertions by subject, the remaining ones in order: a renamed variable is no cheat."""
    left_now = list(now.asserts)
    found, left_was = [], []
    for old in was.asserts:
        match = next((new for new in left_now if new.subject == old.subject and new.strength >= old.strength), None)
        match = match or next((new for new in left_now if new.subject == old.subject), None)
        if match is None:
            left_was.append(old)
            continue
        left_now.remove(match)
        found += _one(now, old, match, around)
    is_rewritten = _rewritten(was, now, around, left_now)
    left_was = [old for old in left_was if not is_rewritten(old)]
    return [*found, *_leftover(now, left_was, left_now, around)]


def _rewritten(was: TestCase, now: TestCase, around: TestContext, new: list[Assertion]) -> Callable[[Assertion], bool]:
    """Return a check whether a missing assertion exists in another form: in a helper, in a row, or combined with others."""
    helped = bool((now.names - was.names) & around.helpers)
    looped = len(now.rows) > len(was.rows)
    errors = [a for a in now.asserts if a.subject == "raises"]  # an error may be checked together with its message
    strongest = max(
        (a.strength for a in (now.asserts if looped else [*new, *errors])), default=AssertionStrength.NOTHING
    )
    values = set(now.words) | {word for row in now.rows for word in row}
    plain = {word for value in values for word in written(value)} | values | (around.words if helped else set())
    plain |= {"".join(word.split()) for word in plain}  # subjects and expected values have no spaces
    unpaired = list(new)

    def replaced(old: Assertion) -> bool:
        """Return whether another assertion that checks as much takes its place, each for one; names alone prove
        nothing."""
        one = next(
            (
                a
                for a in unpaired
                if a.strength >= old.strength and (a.subject == "raises") == (old.subject == "raises")
            ),
            None,
        )
        if one:
            unpaired.remove(one)
        return bool(one)

    def holds(old: Assertion) -> bool:
        called = set(_called(old.subject))
        if (old.subject, old.expected) in around.asserted:
            return True
        if old.subject.startswith(ERROR_OF):  # a call that is no longer made has no error
            return helped or not called & now.names
        asked = set(written(re.sub(r"\[\d+\]", "", f"{old.subject} {old.expected}")))
        if not asked or old.strength < AssertionStrength.PARTLY:
            gone = bool(_words_of(old.subject) & around.vanished) or old.strength is AssertionStrength.NOTHING
            return helped or gone or looped or replaced(old)
        return asked <= plain and (helped or strongest >= old.strength)

    return holds


def _words_of(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _one(case: TestCase, old: Assertion, new: Assertion, around: TestContext) -> list[Cheat]:
    if new.strength < old.strength:
        detail = f"{case.name} no longer checks {old.subject} {_like(old)}"
        return [Cheat(file=case.file, line=new.line, rule="assertion-weakened", detail=detail)]
    if new.loose > max(old.loose, EXACT_ENOUGH):
        detail = f"{case.name} tolerates {new.loose:g} where it was {old.loose:g}"
        return [Cheat(file=case.file, line=new.line, rule="tolerance-loosened", detail=detail)]
    edited = old.strength == new.strength and old.literal and new.literal and old.expected != new.expected
    if edited and not around.asks_for(new.expected):
        detail = f"{case.name} expects {new.expected} of {old.subject} where it expected {old.expected}"
        return [Cheat(file=case.file, line=new.line, rule="expected-edited", detail=detail, doubt=True)]
    return []


def _like(assertion: Assertion) -> str:
    return f"against {assertion.expected}" if assertion.expected else "as it did"


def _leftover(case: TestCase, old: list[Assertion], new: list[Assertion], around: TestContext) -> list[Cheat]:
    """Find assertions whose subject is gone: fewer or weaker ones in their place are a loss."""
    missing = sum(a.strength for a in old) - sum(a.strength for a in new)
    raised = [a for a in old if a.subject == "raises" and a.strength > AssertionStrength.NOTHING]
    if len(raised) > sum(a.subject == "raises" for a in new):
        detail = f"{case.name} no longer expects the error {raised[0].expected}"
        return [_cheat(case, "assertion-removed", detail, doubt=missing <= 0)]
    if missing > 0:
        fewer = len(new) < len(old)
        rule = "assertion-removed" if fewer else "assertion-weakened"
        weaker = any(a.strength <= AssertionStrength.SOMETHING for a in new)
        detail = f"{case.name} no longer checks {old[0].subject} {_like(old[0])}"
        return [_cheat(case, rule, detail, doubt=not fewer and not weaker)]
    by_shape = defaultdict(list)
    for assertion in new:
        by_shape[_shape(assertion.subject)].append(assertion)
    found = []
    for was in old:
        same = by_shape[_shape(was.subject)]
        if not same or not was.literal or not (now := same.pop(0)).literal:
            continue
        if _inputs(was) == _inputs(now):
            found += _one(case, was, now, around)
    return found or _easier(case, old, new, around)


def _easier(case: TestCase, old: list[Assertion], new: list[Assertion], around: TestContext) -> list[Cheat]:
    """One assertion in place of another one, about the same function but another input."""
    if not len(old) == len(new) == 1 or not (old[0].expected and new[0].expected):
        return []
    was, now = old[0], new[0]
    about = [re.match(r"[\w.:]*", a.subject) for a in (was, now)]
    same = about[0] and about[1] and about[0][0] == about[1][0] and was.subject != now.subject
    if not same or around.asks_for(now.expected) or not (set(written(was.expected)) - set(written(now.expected))):
        return []
    detail = f"{case.name} asks about {now.subject} where it asked about {was.subject}"
    return [Cheat(file=case.file, line=now.line, rule="expected-edited", detail=detail, doubt=True)]


def _shape(subject: str) -> str:
    return "".join(c for c in subject if not (c.isalnum() or c == "_"))


def _inputs(assertion: Assertion) -> list[str]:
    return sorted(_literals(assertion.subject))


def _literals(text: str) -> list[str]:
    kept = "".join(c if c.isalnum() or c in "._" else " " for c in text)
    return [word for word in kept.split() if word[0].isdigit()]


def _rows(was: TestCase, now: TestCase, around: TestContext) -> list[Cheat]:
    """Find rows whose answer was edited: some values changed. Rows may be added, and replaced as a whole."""
    lost, fresh = Counter(was.rows) - Counter(now.rows), list((Counter(now.rows) - Counter(was.rows)).elements())
    found = []
    for row in lost.elements():
        if edited := next((new for new in fresh if _edited(row, new)), None):
            fresh.remove(edited)
            if around.asks_for(" ".join(set(edited) - set(row))):
                continue
            detail = f"{now.name}: {' '.join(row)} became {' '.join(edited)}"
            found.append(Cheat(file=now.file, line=now.line, rule="expected-edited", detail=detail, doubt=True))
        elif fresh:
            fresh.pop()
        else:
            detail = f"{now.name} is no longer tried with {' '.join(row)}"
            found.append(_cheat(now, "test-removed", detail, doubt=True))
    return found


def _edited(row: tuple[str, ...], new: tuple[str, ...]) -> bool:
    return len(row) == len(new) > 1 and 0 < sum(a != b for a, b in zip(row, new, strict=True)) < len(row)


# --- new tests ------------------------------------------------------------------------------------------------------


def _without_assertions(case: TestCase) -> list[Cheat]:
    """Find new tests that check nothing; a test without assertions may still check that no error is raised."""
    if case.asserts and not case.disabled and all(a.strength is AssertionStrength.NOTHING for a in case.asserts):
        return [_cheat(case, "hollow-test", f"{case.name} is true whatever the code does", doubt=True)]
    return []


def _cheat(case: TestCase, rule: str, detail: str, *, doubt: bool = False) -> Cheat:
    return Cheat(file=case.file, line=case.line, rule=rule, detail=detail, doubt=doubt)
