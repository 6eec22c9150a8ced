"""Tests as what they ask, the same for every language, and what of it was taken away between two trees."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

import msgspec

from ratchet.core.cheats.found import Cheat

ERROR_OF = "the error of "  # a subject: that a call gave none
EXACT_ENOUGH = 1e-5  # what `approx` and its like allow by themselves: floats are compared so


class Strength(IntEnum):
    """How much an assertion asks."""

    NOTHING = 0  # true whatever the code does: `assert True`, `x == x`, swallowed, never reached
    SOMETHING = 1  # there is a value, or it is of a type
    PARTLY = 2  # contains, greater than, about, any error
    EXACTLY = 3


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """`subject` is what is looked at, `expected` what it must be, both as text with spaces taken out; `literal` says
    whether what is expected is written out; `loose` grows with the tolerance."""

    line: int
    subject: str
    strength: Strength
    expected: str = ""
    literal: bool = False
    loose: float = 0.0


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test. `disabled` says by what it is kept from running; `rows` are the written-out values it is repeated with,
    each as its texts; `words` are all values written in it, `names` all that it speaks of."""

    file: str
    name: str
    line: int
    asserts: list[Assertion]
    last_line: int = 0
    disabled: str = ""
    rows: list[tuple[str, ...]] = []
    words: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


class Around(msgspec.Struct, frozen=True, kw_only=True):
    """What else changed: `words` and `names` are those on added lines of test files, `vanished` what the sources defined
    and do not any more, `helpers` functions beside the tests that assert on their behalf."""

    words: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    vanished: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()
    spec: str = ""

    def asks_for(self, expected: str) -> bool:
        """Whether what was asked names this value. A digit alone stands everywhere and is no name."""
        values, spec = [word.strip("\"'") for word in written(expected)], "".join(self.spec.split())
        return bool(values) and all(len(value) > 1 and "".join(value.split()) in spec for value in values)


def compare_cases(before: Sequence[Case], after: Sequence[Case], unread: set[str], around: Around) -> list[Cheat]:
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
    )
    for case in sorted(gone, key=lambda case: (case.file, case.line)):
        if heir := _heir(case, fresh):
            fresh.remove(heir)
            pairs.append((case, heir))
        elif not (case.names & around.vanished or _taken_over(case, after, around)):
            found.append(_cheat(case, "test-removed", f"{case.name} is gone"))
    for was, now in pairs:
        found += _weakened(was, now, around)
    return [*found, *(cheat for case in fresh for cheat in _hollow(case))]


def _by_name(cases: Iterable[Case]) -> dict[tuple[str, str], Case]:
    return {(case.file, case.name): case for case in cases}


def _heir(gone: Case, fresh: Sequence[Case]) -> Case | None:
    """A new test that asks the same: the old one under another name or in another file, or of what was renamed."""
    asked, values = _asked(gone), _values(gone)
    same = [case for case in fresh if asked and _asked(case) == asked]
    same = same or [
        case for case in fresh if values and _values(case) == values and len(case.asserts) == len(gone.asserts)
    ]
    return next((case for case in same if case.name == gone.name), same[0] if same else None)


def _asked(case: Case) -> Counter[tuple[str, str]]:
    return Counter((a.subject, a.expected) for a in case.asserts)


def _values(case: Case) -> list[tuple[list[str], Strength]]:
    """What is written out in each assertion, whatever the names are."""
    found = [(sorted(written(f"{a.subject} {a.expected}")), a.strength) for a in case.asserts]
    return found if any(values for values, _ in found) else []


def _taken_over(gone: Case, after: Sequence[Case], around: Around) -> bool:
    """Whether everything written in it is now asked elsewhere: several tests made into one, or one into several."""
    values = gone.words - {repr(gone.name), f'"{gone.name}"'}
    alive = any(not case.disabled and any(a.strength is Strength.EXACTLY for a in case.asserts) for case in after)
    spoken = {name for a in gone.asserts for name in _called(a.subject)}
    return alive and bool(values) and values <= around.words and spoken <= around.names | around.helpers


_WRITTEN = re.compile(r"""(?<![\w.])-?\d+(?:\.\d+)?|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")


def written(text: str) -> list[str]:
    """The values written out in it, the same however they are quoted."""
    return [f"'{word[1:-1]}'" if word[0] in "\"'" else word for word in _WRITTEN.findall(text)]


def _called(subject: str) -> list[str]:
    return re.findall(r"([A-Za-z_]\w*)\(", re.sub(r"\bnew(?=[A-Z])", "", subject))


# --- the same test, before and after ------------------------------------------------------------------------------


def _weakened(was: Case, now: Case, around: Around) -> list[Cheat]:
    if now.disabled and not was.disabled:
        return [_cheat(now, "test-disabled", f"{now.name}: {now.disabled}")]
    return [*_assertions(was, now, around), *_rows(was, now, around)]


def _assertions(was: Case, now: Case, around: Around) -> list[Cheat]:
    """By subject first; what is left over is compared in order, for a renamed variable is no cheat."""
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
    said_anew = _said_anew(was, now, around, left_now)
    left_was = [old for old in left_was if not said_anew(old)]
    return [*found, *_leftover(now, left_was, left_now, around)]


def _said_anew(was: Case, now: Case, around: Around, new: list[Assertion]) -> Callable[[Assertion], bool]:
    """Whether an assertion that is not found again is asked in another form: by a helper, by a row, in one with others."""
    helped = bool((now.names - was.names) & around.helpers)
    looped = len(now.rows) > len(was.rows)
    strongest = max((a.strength for a in (now.asserts if looped else new)), default=Strength.NOTHING)
    values = set(now.words) | {word for row in now.rows for word in row}
    plain = {word for value in values for word in written(value)} | values

    def holds(old: Assertion) -> bool:
        if old.subject.startswith(ERROR_OF):  # a call that is not made any more has no error
            return helped or not set(_called(old.subject)) & now.names
        asked = set(written(f"{old.subject} {old.expected}"))
        if not asked:
            return helped or not _called(old.subject) or not set(_called(old.subject)) & now.names
        return asked <= plain and (helped or strongest >= old.strength)

    return holds


def _one(case: Case, old: Assertion, new: Assertion, around: Around) -> list[Cheat]:
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


def _leftover(case: Case, old: list[Assertion], new: list[Assertion], around: Around) -> list[Cheat]:
    """Assertions whose subject is not found again: fewer or weaker ones in their place are a loss."""
    missing = sum(a.strength for a in old) - sum(a.strength for a in new)
    if missing > 0:
        rule = "assertion-removed" if len(new) < len(old) else "assertion-weakened"
        return [_cheat(case, rule, f"{case.name} no longer checks {old[0].subject} {_like(old[0])}")]
    by_shape = defaultdict(list)
    for assertion in new:
        by_shape[_shape(assertion.subject)].append(assertion)
    found = []
    for was in old:
        same = by_shape[_shape(was.subject)]
        if same and was.literal and (now := same.pop(0)).literal and _inputs(was) == _inputs(now):
            found += _one(case, was, now, around)
    return found


def _shape(subject: str) -> str:
    return "".join(c for c in subject if not (c.isalnum() or c == "_"))


def _inputs(assertion: Assertion) -> list[str]:
    return sorted(_literals(assertion.subject))


def _literals(text: str) -> list[str]:
    kept = "".join(c if c.isalnum() or c in "._" else " " for c in text)
    return [word for word in kept.split() if word[0].isdigit()]


def _rows(was: Case, now: Case, around: Around) -> list[Cheat]:
    """A row with some of its values changed has its answer edited; rows may be added, and replaced as a whole."""
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
            found.append(_cheat(now, "test-removed", f"{now.name} is no longer tried with {' '.join(row)}"))
    return found


def _edited(row: tuple[str, ...], new: tuple[str, ...]) -> bool:
    return len(row) == len(new) > 1 and 0 < sum(a != b for a, b in zip(row, new, strict=True)) < len(row)


# --- new tests ------------------------------------------------------------------------------------------------------


def _hollow(case: Case) -> list[Cheat]:
    """A new test that asks nothing proves nothing; one without assertions may still check that nothing is raised."""
    if case.asserts and not case.disabled and all(a.strength is Strength.NOTHING for a in case.asserts):
        return [_cheat(case, "hollow-test", f"{case.name} is true whatever the code does")]
    return []


def _cheat(case: Case, rule: str, detail: str) -> Cheat:
    return Cheat(file=case.file, line=case.line, rule=rule, detail=detail)
