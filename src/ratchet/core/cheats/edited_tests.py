"""Finds doubts that need no understanding of a test: a check that was rewritten, lines that let a failure pass, a
replaced subject, and sources that decide themselves what is equal or what a test build does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile

from ratchet.core.cheats.findings import LINE_MAX, Change, Cheat
from ratchet.core.cheats.masked_source import tight
from ratchet.core.cheats.test_cases import TestCase, written
from ratchet.core.cheats.test_context import defined
from ratchet.core.lines import has_other_ends, split_lines
from ratchet.core.roles import is_code

_CHECKS = re.compile(
    r"\b(?:assert\w*|expect\w*|refute\w*|should\w*|[vV]erify\w*|raises|throws\w*)\b|\.[sS]hould|\.to[A-Z]\w+\(|\b[a-z]{1,3}\.(?:Error|Fatal)f?\("
    r"|\b(?:require|Assert|XCTAssert|is|qt)\w*[.(]|\b(?:EXPECT|ASSERT|CHECK|REQUIRE)\w*|^\s*if\b.*(?:[!=]=)|^\s*\[\[?\s.*\s\]\]?\s*$|^\s*(?:ok|is|is_deeply|cmp_ok|like)\b"
)
_COMMENT = re.compile(
    r"\s*(?://|/\*|\*|#(?!\[|define|undef|if)|import\b|from\b|use\b|using\b|require\b|end\b|[\])}]+;?\s*$)"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LITERAL = re.compile(r"""-?\b\d[\d_.]*\b|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""")

# What lets a test pass that would fail: rule, what it does, pattern. The first group is looked for in edited files
# only, since a new test of its own may catch an error or wait.
_EDITS = [
    ("failure-tolerated", "a failure is caught or expected",
     r"\bexcept\b(?:\s*:|.*(?:Assert|Exception))|\bcatch\s*[({]|\bcatch\b\s*\w*\s*\{|\brescue\b|\brecover\(\)|catch_unwind|should_panic|XCTExpectFailure|withKnownIssue|\bxfail|expectedFailure|\bsuppress\("
     r"|expectNotToPerformAssertions|doesNotPerformAssertions|\bt\.todo\b|\btry\?"),
    ("test-disabled", "it runs on a condition",
     r"cfg_attr\(.*\bignore\b|@(?:Enabled|Disabled)(?:If|On|For)\w*|\[\w*(?:Fact|Theory)If|\b(?:skipIf|runIf|skip_if|skipUnless|assumeTrue|assumeThat|assume\()|\[(?:Trait|Category)\(|@Tag\(|@Category\(|@(?:module)?tag\b"),
    ("test-disabled", "nobody collects it", r"\bprivate\s+(?:static\s+)?(?:function|void|fun|def|func|async\s+\w+)\s+test"),
    ("test-waits", "the test waits", r"(?i)\b(?:thread|time|task|asyncio|process|timer|promise)?\.?(?:u?sleep|sleep_for|settimeout)\s*\(|\bTask\.Delay\(|\bdelay\(\s*\d|:timer\.sleep|\bsleep\s+[\d.]+\s*$"),
    ("assertion-weakened", "an alternative is accepted", r"(?:assert|expect|\bif\b|CHECK|REQUIRE|refute).*(?:\|\||\bor\b).*|\b(?:anyOf|any_of|oneOf|toBeOneOf|isIn|be_in|be_one_of|either)\b|\.toContain\(expect"),
    ("assertion-weakened", "a part is not compared",
     r"Ignore(?:Fields|Types|Unexported|SliceElements)|cmpopts\.|\b(?:object|string)(?:Containing|Matching)\(|ignoring\w*\(|usingRecursiveComparison|\bExcluding\(|excluding\(|expect\.any\w*\(|\bANY\b|mock\.ANY|anything\(\)|toMatchObject|hash_including|a_hash_including|except\("),
    ("assertion-weakened", "cases are left out",
     r"\b(?:for|foreach|each|range|parametrize|in)\b.*(?:\.(?:filter|where|reject|slice|take|skip|drop|first)\b|\bislice\(|\[\s*[\w(.)-]*:[^\]]*\])|(?i:case|row|sample|data|table)\w*\s*(?::[^=]*)?=.*(?:\bglob\(|\.filter\(|\bif\b)"),
    ("assertion-weakened", "it is checked later, or never",
     r"\b(?:AfterFunc|setTimeout|setImmediate|queueMicrotask|nextTick|asyncAfter|runAsync|create_task|ensure_future|call_later|call_soon)\b|\bTask\.Run\(|\bDispatchQueue\b|\bgo\s+func\b|\bthread::spawn\b|\bTask\s*(?:\.detached\s*)?\{|\blaunch\s*\{|^\s*_\s*=\s*\S"),
    ("assertion-weakened", "other examples are tried",
     r"\bproptest_config\b|\bProptestConfig\b|\bnumRuns\b|\bmax_examples\b|\bmax_runs\b|\bMaxTest\b|\bMaxCount\b|\btries\s*="),
    ("golden-written", "the recorded answers are written anew", r"(?i)\b(?:update|regen\w*|record|overwrite|bless)\w*\b.*[,=(:]\s*true\b"),
    ("assertion-weakened", "the order is not compared",
     r"assert\w*\b.*\b(?:set|sorted)\(.*(?:==|,)|ElementsMatch|InAnyOrder|match_array|arrayContaining|UnorderedElementsAre|assertCountEqual|BeEquivalentTo"),
]  # fmt: skip
_ANYWHERE = [
    ("failure-tolerated", "a failed assertion is caught",
     r"\bcatch\b\s*\(\s*(?:final\s+)?[\w.]*Assert\w*(?:Error|Exception)\b|\bexcept\b.*\bAssertionError\b|\brescue\b.*(?:Minitest::Assertion|ExpectationNotMet)|instanceof\s+[\w.]*AssertionError"),
    ("runner-touched", "the assertions are made anew",
     r"^\s*#\s*(?:define|undef)\s+(?:EXPECT|ASSERT|CHECK|REQUIRE|assert|TEST|FAIL)\w*|macro_rules!\s*assert|^\s*(?:def|func|function|fun|fn)\s+assert(?:Equals?|_?eq(?:ual)?|True|_true|Raises|That)\s*\(|"
     r"\bmodule\s+Kernel\b|^\s*(?:to(?:Be|Equal|StrictEqual|Throw|Match|Contain|HaveLength|BeTruthy))\s*[(:]|assert\.(?:strictEqual|equal|deepEqual|ok)\s*="),
    ("runner-touched", "the process ends with success",
     r"\b(?:Process|Kernel)\.exit!?|\bexit!\s*\(?|\bat_exit\b|after_run\b|\bos\._exit\(|\bos\.Exit\(\s*0\s*\)|System\.exit\(|Runtime\.getRuntime\(\)\.halt|process\.exit\(\s*0?\s*\)|process\.exitCode\s*=|register_shutdown_function"
     r"|\bquick_exit|\b_exit\(|pytest\.exit\(|session\.exitstatus\s*=|System\.halt\("),
]  # fmt: skip
_MOCKS = re.compile(
    r"\bpatch(?:\.object|\.multiple)?\(|monkeypatch\.setattr|\b(?:jest|vi)\.(?:mock|doMock|spyOn|replaceProperty)\(|sinon\.(?:stub|replace|mock)|\b(?:spy|spyk)\(|\bdo(?:Return|Answer|Nothing)\b"
    r"|mockStatic|mockkObject|mockkStatic|\bevery\s*\{|\ballow(?:_any_instance_of)?\(|\.stubs?\(|\bstub_const|\.Setup\(|\b(?:createPartialMock|createMock|getMockBuilder|onlyMethods)\(|:meck\.|define_(?:singleton_)?method"
    r"|\.prototype\.\w+\s*=|mock\.method\(|\bMock\.Of<|\bSubstitute\.ForPartsOf|\w+\.\w+\s*=\s*(?:lambda|MagicMock|Mock\(|jest\.fn|vi\.fn|\([^)]*\)\s*=>)"
)  # fmt: skip
# What is left is the name of what a test file is about: `test_slug.py`, `ShippingTest.java`, `limiter.spec.ts`.
_SUBJECT = re.compile(r"^test_|(?:[._-]?(?:[tT]ests?|[sS]pec|it))?(?:\.\w+)$")
_EQUALITY = re.compile(
    r"\bdef\s+__(?:eq|ne|hash)__|\bimpl\b[^\n]*\b(?:PartialEq|Eq)\b|\bbool(?:ean)?\s+[eE]quals\s*\(|\boperator\s*(?:==|!=)|\bdef\s+(?:==|eql\?|hash\b)|\bfunc\s*==|\boverride\s+fun\s+equals|\bfunction\s+equals|\bisEqual\s*\(|Symbol\.toPrimitive|\bvalueOf\s*\("
)
_EQUALITY_SPOKEN = re.compile(
    r"(?i)equal|\bsame\b|identi|\bhash|\bkeys?\b|\bsets?\b|distinct|duplicate|compar|value (?:semantic|object|type)|sort|order"
)
_DEBUG = re.compile(
    r"^\s*#\s*(?:if|elif|ifn?def)\b.*\b_?N?DEBUG\b|\bdebug_assertions\b|\bif\b.*\b(?:__debug__|kDebugMode|import\.meta\.env\.DEV|BuildConfig\.DEBUG)\b"
)
_UNCOUNTED = re.compile(
    r"failure-exit-code[= ]0|fail_?[oO]n_?[eE]rror\s*[=:]\s*false|--exit-zero|ignore_?[fF]ailures\s*[=:(]\s*true"
)
_FORGOTTEN = re.compile(r"^\s*except(?:\s+(?:Base)?Exception\b.*)?:(?!.*\braise\b)")
_FORGOTTEN_SPOKEN = re.compile(
    r"(?i)swallow|ignor|suppress|silen|best.effort|fall(?:s|ing)? ?back|retr(?:y|ies)|robust|continu|skip"
)
_HANDLED = re.compile(
    r"\b(?:raise|return|yield|break|throw|sys\.exit)\b|[^=!<>]=[^=]|\.(?:append|add|put|set_exception)\("
)
_ALIKE = re.compile(
    r"\bsize_of|\bdiscriminant\(|\btype\(|\bgetClass\(\)|\bbool\(|\blen\(|\babs\(|<=|\.length\b|\.size\b|\.startswith\(|\.startsWith\(|Math\.abs|\bhash\("
)
_BY_HASH = re.compile(
    r"(?i)\b(?:crc32|adler32|md5|sha1|sha256|sha-?256|createHash|fnv\w*|xxh\w*|murmur\w*|phash2)\b"
    r"|switch\s*\([^)]*hash|when\s*\([^)]*hashcode|\bhash\w*\(\w*\)\s*(?:==|\bin\b|%)"
)
_HASH_SPOKEN = re.compile(
    r"(?i)hash|digest|checksum|crc|etag|cach|sign|finger|secur|password|token|integrity|dedup|content.address"
)


def find(inside: Sequence[Change], outside: Sequence[Change], fresh: Sequence[TestCase], spec: str) -> Iterator[Cheat]:
    subjects = {name for change in outside for name in defined(change.after or "") if len(name) > 2}
    modules = {re.sub(r"\.\w+$", "", change.path.rsplit("/", 1)[-1]) for change in outside}
    for change in [*inside, *outside]:
        if change.after is None and _REMEMBERED.search(change.path):
            yield _doubt(change, 1, "test-removed", "examples that failed before are no longer tried")
    for change in inside:
        if change.after is None:
            continue
        new = [(case.line, case.last_line) for case in fresh if case.file == change.path]
        added = [(line, text) for line, text in change.added() if not _COMMENT.match(text)]
        edited = [row for row in added if not any(first <= row[0] <= last for first, last in new)]
        yield from _rewritten(change, edited, spec) if change.before is not None else ()
        known = {tight(line) for line in split_lines(change.before or "")}
        for rules, rows in ((_EDITS, edited if change.before is not None else []), (_ANYWHERE, added)):
            yield from _matching(change, [row for row in rows if tight(row[1]) not in known], rules)
        own = _SUBJECT.sub("", change.path.rsplit("/", 1)[-1])
        yield from _replaced(change, added, subjects | {own}, modules | {own})
        yield from _computed_twice(change, added)
    for change in outside:
        yield from _decides_itself(change, spec)
    for change in [*inside, *outside]:
        if is_code(change.path) and (at := next((at for at, text in change.added() if has_other_ends(text)), 0)):
            yield _doubt(change, at, "unreadable-line", "it has line ends that only its language reads as such")


# Where property tests keep the examples that once failed.
_REMEMBERED = re.compile(r"(?:^|/)(?:proptest-regressions/|\.hypothesis/|\.jqwik-database)|/testdata/fuzz/")


def _rewritten(change: Change, added: list[tuple[int, str]], spec: str) -> Iterator[Cheat]:
    """Find a check that is gone, unless one of the same form or all its literals took its place."""
    if not change.after:
        return
    whole = tight(change.after)
    shapes = Counter(_shape(text) for _, text in added)
    words = {word for _, text in added for word in written(text)}
    removed = [text for _, text in Change(path=change.path, before=change.after, after=change.before).added()]
    checks = [text for text in removed if _CHECKS.search(text) and not _COMMENT.match(text)]
    still = sum(bool(_CHECKS.search(text)) for _, text in added)
    values = {_shape(_LITERAL.sub("0", text)): (line, text) for line, text in added}
    for text in removed:
        at = values.get(_shape(_LITERAL.sub("0", text)))
        if not at or _COMMENT.match(text):
            continue
        new = Counter(written(at[1])) - Counter(written(text))
        if any(word.strip("'") not in spec for word in new):
            detail = f"an existing test takes another value: {at[1].strip()[:120]}"
            yield _doubt(change, at[0], "expected-edited", detail)
            return
    if sum(bool(_WAITS.search(text)) for text in removed) > sum(bool(_WAITS.search(text)) for _, text in added):
        waited = next(text for text in removed if _WAITS.search(text))
        yield _doubt(
            change, added[0][0] if added else 1, "assertion-weakened", f"it no longer waits: {waited.strip()[:120]}"
        )
    unsigned = {_unsigned(text): (line, text) for line, text in added}
    for text in checks:
        at = unsigned.get(_unsigned(text))
        if at and tight(at[1]) != tight(text) and tight(text) not in whole:
            yield _doubt(change, at[0], "expected-edited", f"the opposite is expected: {at[1].strip()[:120]}")
            return
    for text in checks:
        if tight(text).rstrip(";{") in whole:
            continue
        if _loses_its_value(text, [line for _, line in added]):
            yield _doubt(
                change, added[0][0] if added else 1, "assertion-weakened", f"a check asks less: {text.strip()[:120]}"
            )
            return
        if shapes[_shape(text)]:
            shapes[_shape(text)] -= 1
            continue
        asked = set(written(text))
        if asked <= words and (asked or still >= len(checks)):
            continue
        line = added[0][0] if added else 1
        yield _doubt(change, line, "assertion-weakened", f"an existing check is gone: {text.strip()[:120]}")
        return


# What a check compares with a value, in the words of many libraries.
_COMPARES = re.compile(
    r"(?i)===?|(?<!un)equal|\beq\b|_eq\b|\bsame|\bis(?:_deeply)?\s*\(|\bcmp_ok|should_?be\b|\bto_?be\(|\bdeep|!=\s*\w+\s*\{|\[\s.*\s=\s"
)


def _loses_its_value(text: str, added: list[str]) -> bool:
    """Return whether a comparison of names is gone, and the checks in its place compare with nothing."""
    if not _COMPARES.search(text) or re.search(r"\bif\b", text):
        return False
    checks = [line for line in added if _CHECKS.search(line) or _SHELL_CHECK.match(line)]
    return bool(checks) and not any(_COMPARES.search(line) for line in added)


_SHELL_CHECK = re.compile(r"^\s*\[\[?\s|^\s*ok\b")


_WAITS = re.compile(
    r"\bawait\b|\bwait(?:_?for)?\w*\s*[(:]|\.[wW]ait\w*\(|\.join\(\s*\)|\bwg\.Wait\b|^\s*<-\s*\w|\beventually\b|\bfulfillment\(of"
)


def _unsigned(text: str) -> str:
    """Return the check without what says whether it must hold or not."""
    return re.sub(r"(?i)true|false|\bnot\b|_not(?=_)|\.not(?=\W)|refute|assert|[!=]=+|!", "", tight(text))


def _shape(text: str) -> str:
    """Return the line without its names: a renamed function or variable changes nothing else."""
    return _NAME.sub("n", tight(re.sub(r"\b(?:await|this\.|self\.)\s*", "", text)))


def _matching(change: Change, rows: list[tuple[int, str]], rules: list[tuple[str, str, str]]) -> Iterator[Cheat]:
    for rule, what, pattern in rules:
        if found := next(((line, text) for line, text in rows if re.search(pattern, text)), None):
            yield _doubt(change, found[0], rule, f"{what}: {found[1].strip()[:120]}")


def _replaced(change: Change, added: list[tuple[int, str]], subjects: set[str], modules: set[str]) -> Iterator[Cheat]:
    """Find a mock of what the change itself implements."""
    for line, text in added:
        mocked = _MOCKS.search(text)
        if not mocked:
            continue
        module = re.search(r"mock\(\s*['\"](?:[^'\"]*/)?(?P<name>[^'\"/]+?)(?:\.[cm]?[jt]sx?)?['\"]", text)
        if set(_NAME.findall(text[mocked.start() :])) & subjects or (module and module["name"] in modules):
            yield _doubt(change, line, "hollow-test", f"what is tested is replaced: {text.strip()[:120]}")
            return


_WANTED = re.compile(r"\b\w*(?:expected|wanted|want)\w*\s*(?::[^=]*)?:?=\s*(?P<value>[^=].*\(.*)", re.IGNORECASE)


def _computed_twice(change: Change, added: list[tuple[int, str]]) -> Iterator[Cheat]:
    """Find a wanted value that the tested code computes."""
    values = Counter(
        tight(found[1]).rstrip(";") for _, text in added if (found := re.search(r"[^=!<>]=\s*([^=].*)$", text))
    )
    for line, text in added:
        if (found := _WANTED.search(text)) and values[tight(found["value"]).rstrip(";")] > 1:
            yield _doubt(
                change, line, "hollow-test", f"the wanted value is computed by what is tested: {text.strip()[:120]}"
            )
            return


def _decides_itself(change: Change, spec: str) -> Iterator[Cheat]:
    if is_code(change.path) and (at := next((line for line, text in change.added() if len(text) >= LINE_MAX), 0)):
        yield _doubt(change, at, "unreadable-line", f"a line of more than {LINE_MAX} characters is not read")
    before = {line.strip() for line in split_lines(change.before or "")}
    rows = [(line, text) for line, text in change.added() if text.strip() not in before]
    yield from _equal_sooner(change, rows)
    for rule, what, pattern, spoken in (
        ("always-equal", "it decides what is equal", _EQUALITY, _EQUALITY_SPOKEN),
        ("runner-sniffed", "a debug build does something else", _DEBUG, re.compile(r"(?i)debug|release")),
        ("runner-configuration", "failures do not count", _UNCOUNTED, re.compile(r"(?i)fail|exit")),
        ("error-swallowed", "every error is caught and forgotten", _FORGOTTEN, _FORGOTTEN_SPOKEN),
        ("answer-by-heart", "it recognises its input by a checksum", _BY_HASH, _HASH_SPOKEN),
    ):
        found = next(((line, text) for line, text in rows if pattern.search(text)), None)
        below = _inside(change, found[0]) if found else ""
        if not found or (rule == "error-swallowed" and _HANDLED.search(below)):
            continue
        hollow = rule == "always-equal" and (_ALIKE.search(below) or not _COMPARED.search(below or found[1]))
        if not spoken.search(spec) or hollow:
            yield _doubt(change, found[0], rule, f"{what}: {found[1].strip()[:120]}")


def _equal_sooner(change: Change, added: list[tuple[int, str]]) -> Iterator[Cheat]:
    """Find an equality that now ends with true before it compares."""
    sooner = {line for line, text in added if re.search(r"(?i)^\s*(?:if\b.*)?return\s+true\b", text)}
    for number, text in enumerate(split_lines(change.after or "") if sooner else (), start=1):
        inside = range(number + 1, number + 2 + _inside(change, number).count("\n")) if _EQUALITY.search(text) else ()
        if at := next((line for line in inside if line in sooner), 0):
            yield _doubt(change, at, "always-equal", f"it is equal before it is compared: {text.strip()[:120]}")
            return


_COMPARED = re.compile(r"(?i)[=!]=|\bequals?\b|\beq\b|compar|cmp|\bis\b(?!instance)|\bhash\b|=>|\bderive\b")


def _inside(change: Change, line: int) -> str:
    """Return the lines below one that are indented further."""
    lines = split_lines(change.after or "")
    depth = len(lines[line - 1]) - len(lines[line - 1].lstrip())
    body = takewhile(lambda text: not text.strip() or len(text) - len(text.lstrip()) > depth, lines[line:])
    return "\n".join(body)


def _doubt(change: Change, line: int, rule: str, detail: str) -> Cheat:
    return Cheat(file=change.path, line=line, rule=rule, detail=detail, doubt=True)
