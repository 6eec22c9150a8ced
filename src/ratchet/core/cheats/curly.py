"""JavaScript, TypeScript, Go, Rust, Java and their like, read by their words: tests, and what each asserts.

No grammar: comments and strings are masked, blocks found by counting brackets. It is enough to see a test go, fall
asleep or ask less; what cannot be read gives no case, and the run's own inventory still counts its tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ratchet.core.cheats.cases import ERROR_OF, Assertion, Case, Strength

_HASH = (".rb", ".ex", ".exs", ".bats", ".sh", ".pl", ".t")


def mask(text: str, path: str) -> str:
    """The same text, same length, with what is in comments and strings blanked out."""
    comment = r"#[^\n]*" if path.endswith(_HASH) else r"//[^\n]*|/\*.*?\*/"
    quotes = r'"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`|' + (
        r"'(?:[^'\\\n]|\\.)'"
        if path.endswith((".rs", ".java", ".go", ".kt", ".cs", ".cc", ".cpp"))
        else r"'(?:[^'\\\n]|\\.)*'"
    )
    return re.sub(f"(?P<comment>{comment})|(?P<string>{quotes})", _blank, text, flags=re.DOTALL)


def _blank(found: re.Match[str]) -> str:
    whole = found[0]
    inner = re.sub(r"[^\n]", " ", whole if found["comment"] else whole[1:-1])
    return inner if found["comment"] else f"{whole[0]}{inner}{whole[-1]}"


def _closing(masked: str, at: int) -> int:
    """Where the bracket that opens at `at` closes; the end when it does not."""
    depth = 0
    for place in range(at, len(masked)):
        if masked[place] in "([{":
            depth += 1
        elif masked[place] in ")]}":
            depth -= 1
            if depth == 0:
                return place
    return len(masked)


# --- where the tests are --------------------------------------------------------------------------------------------

_QUOTED = r"""(?P<quote>['"`])(?P<name>(?:\\.|(?!(?P=quote)).)*)(?P=quote)"""
_JS = re.compile(
    rf"\b(?P<word>x?it|x?test|x?specify|fit)(?P<mode>(?:\.\w+)*)\s*(?:\((?P<table>\[.*?\])\)|`.*?`)?\s*\(\s*{_QUOTED}",
    re.DOTALL,
)
_GO = re.compile(r"^func\s+(?P<name>(?:Test|Fuzz|Example)\w*)\s*\((?P<arg>\w+)?[^)]*\)\s*\{", re.MULTILINE)
_RUST = re.compile(r"(?P<attributes>(?:#\[[^\n]*\]\s*)+)(?:pub\s+)?(?:async\s+)?fn\s+(?P<name>\w+)\s*\([^)]*\)[^{;]*\{")
_ANNOTATED = re.compile(
    r"(?P<attributes>(?:(?:@\w+(?:\.\w+)*(?:\([^)]*\))?|\[\w+(?:\([^\]]*\))?(?:,\s*\w+(?:\([^\]]*\))?)*\])\s*)+)"
    r"(?:(?:public|private|protected|internal|static|final|async|suspend|override|open)\s+)*[\w<>\[\],.? ]+?\s+(?P<name>\w+|`[^`\n]*`)\s*\([^)]*\)[^{;]*\{"
)
_CPP = re.compile(r"\b(?:TEST(?:_F|_P)?|TYPED_TEST)\s*\(\s*(?P<suite>\w+)\s*,\s*(?P<name>\w+)\s*\)\s*\{")
_CATCH2 = re.compile(rf"\b(?:TEST_CASE|SCENARIO)\s*\(\s*{_QUOTED}[^)]*\)\s*\{{")
_PLAIN = re.compile(
    r"\bfunction\s+(?P<name>test\w*)\s*\([^)]*\)[^{;]*\{|\bfunc\s+(?P<swift>test\w*)\s*\(\)[^{]*\{"
    r"|#\[Test\]\s*(?:public\s+)?function\s+(?P<marked>\w+)\s*\([^)]*\)[^{;]*\{"
)
_KOTEST = re.compile(
    rf"^[ \t]*(?:(?:test|should|it|expect)\s*\(\s*)?{_QUOTED}\s*\)?(?:\s*\.config\([^)]*\))?\s*\{{", re.MULTILINE
)
_WORDED = re.compile(
    rf"^[ \t]*(?:def\s+(?P<def>test\w*)|(?:it|specify|test|@test|scenario)\s*\(?\s*{_QUOTED})", re.MULTILINE
)


def cases(path: str, text: str) -> list[Case]:
    masked = mask(text, path)
    seen: dict[str, int] = {}
    found = []
    mocked = _mocked(text)
    for name, start, first, last, off in _blocks(path, text, masked):
        seen[name] = seen.get(name, 0) + 1
        full = name if seen[name] == 1 else f"{name}#{seen[name]}"
        body, hidden = text[first:last], masked[first:last]
        asserts = list(_assertions(body, hidden, text.count("\n", 0, first) + 1))
        answered = {*mocked, *_answered(body)}
        found.append(
            Case(
                file=path,
                name=full,
                line=text.count("\n", 0, start) + 1,
                last_line=text.count("\n", 0, last) + 1,
                asserts=[_weighed(made, made.line, _asks(made, answered)) for made in asserts],
                names=frozenset(re.findall(r"[A-Za-z_]\w*", hidden)),
                disabled=off or _asleep(hidden),
                rows=_rows(text[start:last], masked[start:last]),
                words=frozenset(re.findall(_LITERAL, _without_comments(body, hidden))),
            )
        )
    return found


_Block = tuple[str, int, int, int, str]
_MOCKED = re.compile(r"""\b(?:jest|vi|vitest)\.mock\(\s*(?P<path>['"][^'"]+['"])\s*,""")


def _mocked(text: str) -> set[str]:
    """What is imported from modules that the file has answered itself."""
    found: set[str] = set()
    for mock in _MOCKED.finditer(text):
        place = re.escape(mock["path"])
        for names in re.findall(
            rf"(?:import|const|let)\s*(\{{[^}}]*\}}|\w+)\s*(?:from\s*|=\s*require\(\s*){place}", text
        ):
            found.update(re.findall(r"\w+", names))
    return found


def _answered(body: str) -> set[str]:
    """Calls that the test itself says the answer to: Mockito's `when(x.y())`, RSpec's `allow(x).to receive(:y)`."""
    stubbed = [_tight(call) for call in re.findall(r"\bwhen\(([^;\n]*?\))\)\s*\.", body)]
    stubbed += [f"{of}.{verb}" for of, verb in re.findall(r"\ballow\(([\w.@]+)\)\s*\.to\s+receive\(:(\w+)\)", body)]
    return set(stubbed)


def _asks(made: Assertion, answered: set[str]) -> bool:
    return made.subject in answered or made.subject.partition("(")[0] in answered


def _blocks(path: str, text: str, masked: str) -> Iterator[_Block]:
    if path.endswith((".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte")):
        yield from _javascript(text, masked)
    elif path.endswith(".go"):
        yield from _braced(_GO, masked, lambda _found: "")
    elif path.endswith(".rs"):
        yield from _attributed(
            _RUST,
            text,
            masked,
            r"#\[(?:\w+::)*(?:test|rstest|test_case|case)\b",
            r"#\[\s*(?:ignore|should_panic|cfg\()",
        )
    elif path.endswith((".java", ".kt", ".groovy", ".scala", ".cs")):
        yield from _attributed(
            _ANNOTATED,
            text,
            masked,
            r"[@\[](?:\w*Test|Fact|Theory|TestMethod|TestCase)\b",
            r"@(?:Disabled|Ignore)|\[Ignore|Skip\s*=|enabled\s*=\s*false",
        )
        if path.endswith(".kt"):
            yield from _named(_KOTEST, text, masked)
    elif path.endswith((".cc", ".cpp", ".cxx", ".c", ".h", ".hpp")):
        yield from _braced(_CPP, masked, lambda found: "DISABLED_" if found["name"].startswith("DISABLED_") else "")
        yield from _named(_CATCH2, text, masked)
    elif path.endswith((".php", ".swift")):
        yield from _braced(_PLAIN, masked, lambda _found: "")
    else:
        yield from _until_next(text, masked)  # Ruby, Elixir, bats: a test goes on to the next one


def _javascript(text: str, masked: str) -> Iterator[_Block]:
    for found in _JS.finditer(text):
        if masked[found.start()] == " " or masked[found.start("quote")] == " ":
            continue
        first = (
            masked.find("(", found.end("mode")) if not found["table"] else masked.rfind("(", 0, found.start("quote"))
        )
        mode, word = found["mode"], found["word"]
        off = (
            f"{word}{mode}"
            if word.startswith(("x", "fit")) or re.search(r"\.(skip|todo|fails|failing|fixme)\b", mode)
            else ""
        )
        yield found["name"], found.start(), found.end(), _closing(masked, first), off


def _braced(pattern: re.Pattern[str], masked: str, off: Callable[[re.Match[str]], str]) -> Iterator[_Block]:
    for found in pattern.finditer(masked):
        groups = found.groupdict()
        name = groups.get("name") or groups.get("swift") or groups.get("marked") or ""
        said = off(found)
        yield (
            f"{groups.get('suite') or ''}{name.removeprefix('DISABLED_')}",
            found.start(),
            found.end(),
            _closing(masked, found.end() - 1),
            said,
        )


def _named(pattern: re.Pattern[str], text: str, masked: str) -> Iterator[_Block]:
    for found in pattern.finditer(text):
        if masked[found.start("quote")] != " ":
            yield found["name"], found.start(), found.end(), _closing(masked, found.end() - 1), ""


def _attributed(pattern: re.Pattern[str], text: str, masked: str, is_test: str, is_off: str) -> Iterator[_Block]:
    for found in pattern.finditer(masked):
        attributes = text[found.start("attributes") : found.end("attributes")]
        if re.search(is_test, attributes):
            off = re.search(is_off, attributes)
            yield found["name"], found.start(), found.end(), _closing(masked, found.end() - 1), off[0] if off else ""


def _until_next(text: str, masked: str) -> Iterator[_Block]:
    starts = [found for found in _WORDED.finditer(text) if masked[found.end() - 1] != " "]
    ends = [found.start() for found in starts[1:]] + [len(text)]
    for found, end in zip(starts, ends[: len(starts)], strict=True):
        yield found["def"] or found["name"], found.start(), found.end(), end, ""


def _asleep(masked: str) -> str:
    """Something before the first assertion that ends the test."""
    first = re.search(_ASSERTING, masked)
    head = masked[: first.start()] if first else masked
    found = re.search(
        r"\bt\.Skip\w*\(|\bthis\.skip\(|\bassume(?:True|False)\(|\bmarkTest(?:Skipped|Incomplete)\(|\bGTEST_SKIP\b|^\s*(?:skip|pending)\b",
        head,
        re.MULTILINE,
    )
    if found:
        return f"{found[0].strip()} added"
    leaves = re.search(r"\bif\b(?P<when>[^{\n]*)(?:\{\s*return\s*;?\s*\}|\)\s*return\s*;)", head)
    return "returns early on a condition" if leaves and not _MACHINE.search(leaves["when"]) else ""


_MACHINE = re.compile(r"GOOS|platform|isWindows|Short\(\)|OSTYPE|_WIN32|cfg!")
_LITERAL = r"""-?\b\d+(?:\.\d+)?\b|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\b(?:true|false)\b"""
_GROUP = re.compile(rf"[\[{{(]\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*(?:,\s*(?:\w+\s*:\s*)?(?:{_LITERAL})\s*)+,?\s*[\]}})]")


_ROWS = re.compile(r"\b(?:InlineData|TestCase|DataRow|Arguments|row|arguments|Arguments\.of|rstest::case|case)$")


def _rows(whole: str, masked: str) -> list[tuple[str, ...]]:
    """Groups of written-out values, as tables of tests have them; calls are looked at as assertions instead."""
    found = []
    for group in _GROUP.finditer(whole):
        before = whole[: group.start()].rstrip()
        if masked[group.start()] != " " and not (
            group[0][0] == "(" and before and (before[-1].isalnum() or before[-1] in "_!>") and not _ROWS.search(before)
        ):
            found.append(tuple(re.findall(_LITERAL, group[0])))
    return found


def _without_comments(body: str, masked: str) -> str:
    """Quotes are kept by the mask, comments are not: what is blank there and not within quotes is a comment."""
    return "\n".join(
        b for b, m in zip(body.splitlines(), masked.splitlines(), strict=True) if m.strip() or not b.strip()
    )


# --- assertions -----------------------------------------------------------------------------------------------------

_ASSERTING = (
    r"(?<![\w$])(?:[\w$]+(?:\.|->|::))*?(?P<verb>expect(?:Exception\w*)?|assert\w*|should|t\.(?:is|deepEqual|true|throws|like|truthy|not)"
    r"|(?:assert|require|Assert|XCTAssert|qt|is)\w*\.\w+|EXPECT_\w+|ASSERT_\w+|REQUIRE\w*|CHECK\w*|XCTAssert\w*|refute\w*)(?P<macro>!?)(?P<of><[\w.,\s]+>)?\s*\("
)
_FAILING = re.compile(r"\b(?:t|b|tb)\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\s*\(|\bpanic!\s*\(")
_WORDS_ASSERTING = re.compile(r"^[ \t]*(?:assert|refute)(?P<verb>\w*)\s+(?!\()(?P<what>[^\n]+)$", re.MULTILINE)

_EXACT = re.compile(
    r"(?i)equal|^eq$|_eq$|assert_eq|strict|same|^is$|tobe$|deep|throws|raises|matchobject|tohavelength|snapshot|containsexactly|^eql?$|streq"
)
_NOT = re.compile(r"(?i)not|ne$|refute|differ")
_SOME = re.compile(
    r"(?i)truthy|defined|^ok$|isok|exist|notnull|notnil|isnotnull|tobeinstanceof|instanceof|typeof|nothrow|notpanics|notempty|tobenull$"
)


def _assertions(body: str, masked: str, line: int) -> Iterator[Assertion]:
    dead = _dead(masked)
    for found in re.finditer(_ASSERTING, masked):
        last = _closing(masked, found.end() - 1)
        made = _assertion(found["verb"], body, masked, (found.end(), last), found["of"] or "")
        if made and _unawaited(body, masked, found.start(), last):
            made = _weighed(made, 0, dead=True)
        if made is None:
            continue
        yield _weighed(made, line + masked.count("\n", 0, found.start()), any(a <= found.start() < b for a, b in dead))
    for found in _FAILING.finditer(masked):
        made = _conditional(body, masked, found.start())
        yield _weighed(made, line + masked.count("\n", 0, found.start()), any(a <= found.start() < b for a, b in dead))
    for found in _WORDS_ASSERTING.finditer(masked):
        what = body[found.start("what") : found.end("what")]
        made = _worded(what, masked[found.start("what") : found.end("what")], found["verb"])
        yield _weighed(made, line + masked.count("\n", 0, found.start()), any(a <= found.start() < b for a, b in dead))
    for found in _INFIX.finditer(masked) if "hould" in masked else ():
        subject, expected = (_tight(body[found.start(name) : found.end(name)]) for name in ("subject", "expected"))
        made = _matched(found["verb"], subject, expected)
        yield _weighed(made, line + masked.count("\n", 0, found.start()), any(a <= found.start() < b for a, b in dead))


# Kotest's `x shouldBe y`, and `x.Should().Be(y)`: the subject comes first and the verb has no brackets of its own.
_INFIX = re.compile(
    r"^[ \t]*(?P<subject>\S[^\n{};]*?)(?:[ \t](?=should[A-Z])|\.Should\(\)\.)(?P<verb>\w+)[ (]+(?P<expected>[^\n;]*?)\)?;?[ \t]*$",
    re.MULTILINE,
)


def _worded(what: str, hidden: str, verb: str) -> Assertion:
    """Ruby's `assert_equal 3, x`."""
    arguments = _arguments(what, hidden, 0, len(hidden))
    if verb and len(arguments) > 1:
        return _classified(f"assert{verb}", arguments)
    return _of_condition(what, verb)


def _matched(verb: str, subject: str, expected: str) -> Assertion:
    """A matcher's name says how much is asked."""
    strength = Strength.PARTLY
    if re.search(r"(?i)not|truthy|be_an?$|present|kind_of|instance", verb) or expected in ("null", "nil"):
        strength = Strength.SOMETHING
    elif re.search(r"(?i)^eq|equal|^be$|shouldbe$|match_array|contain_exactly|containexactly", verb):
        strength = Strength.EXACTLY
    if "raise" in verb or "throw" in verb.lower():
        strength = _of_error(expected)
    return Assertion(line=0, subject=subject, strength=strength, expected=expected, literal=_written(expected))


_BROAD = re.compile(
    r"^\\?(?:java\.lang\.|System\.)?(?:Exception|Throwable|RuntimeException|Error|StandardError|BaseException)(?:\.class|::class(?:\.java)?)?$"
)


def _of_error(kind: str) -> Strength:
    """Any error, an error of a kind, an error that is described."""
    if not kind or _BROAD.match(kind):
        return Strength.SOMETHING
    return Strength.EXACTLY if kind[0] in "\"'/`" else Strength.PARTLY


def _unawaited(body: str, masked: str, start: int, last: int) -> bool:
    """`expect(promise).resolves…` that nobody waits for says nothing."""
    if not re.match(r"\)\s*\.(?:resolves|rejects)\b", masked[last:]):
        return False
    return not re.search(r"(?:\bawait|\breturn|=>|\(|\[|,)\s*$", body[:start])


def _weighed(made: Assertion, line: int, dead: bool) -> Assertion:
    strength = Strength.NOTHING if dead else made.strength
    return Assertion(
        line=line,
        subject=made.subject,
        strength=strength,
        expected=made.expected,
        literal=made.literal,
        loose=made.loose,
    )


def _arguments(body: str, masked: str, first: int, last: int) -> list[str]:
    parts, depth, start = [], 0, first
    for place in range(first, last):
        c = masked[place]
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(body[start:place])
            start = place + 1
    parts.append(body[start:last])
    return [_tight(part) for part in parts if part.strip()]


def _tight(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _assertion(verb: str, body: str, masked: str, brackets: tuple[int, int], of: str) -> Assertion | None:
    first, last = brackets
    arguments = _arguments(body, masked, first, last)
    if verb == "expect" and re.search(r"\.expect\s*$", masked[: first - 1]) and arguments:  # supertest's, on an answer
        return Assertion(
            line=0, subject=f"answer {arguments[0]}", strength=Strength.EXACTLY, expected="".join(arguments[1:])
        )
    to = re.match(r"\)\s*\.(?P<to>to|not_to|to_not)\s+(?P<verb>\w+)(?:\s+|\(|$)(?P<expected>[^\n]*)", masked[last:])
    if verb == "expect" and to and arguments:
        wanted = body[last + to.start("expected") : last + to.end("expected")].rstrip(") ")
        return _matched(("not_" if to["to"] != "to" else "") + to["verb"], arguments[0], _tight(wanted))
    if re.search(r"(?i)throws|^expectException$|raises", verb.rsplit(".", 1)[-1]):
        kinds = [of.strip("<>")] if of else [word for word in arguments if not re.search(r"\(\)|=>|->|\{", word)]
        kind = next((word for word in kinds if word not in ("t", "self")), "")
        return Assertion(line=0, subject="raises", strength=_of_error(kind), expected=kind)
    if verb.endswith("assert") and (
        pattern := re.match(r"matches!\((?P<of>.*),(?P<like>.*)\)$", arguments[0] if arguments else "")
    ):
        whole = Strength.PARTLY if re.search(r"[(,{]_[),}]|\.\.", pattern["like"]) else Strength.EXACTLY
        return Assertion(line=0, subject=pattern["of"], strength=whole, expected=pattern["like"])
    chain = re.match(r"\)\s*((?:\s*(?:\.|->)\s*\w+)+)\s*(\(?)", masked[last:])
    if verb.split(".", maxsplit=1)[0] in ("expect", "assertThat", "should") and chain:
        inner = last + chain.end()
        given = _arguments(body, masked, inner, _closing(masked, inner - 1)) if chain[2] else []
        if re.search(r"(?i)throw", chain[1]) and "not" not in chain[1]:
            kind = given[0] if given else ""
            return Assertion(line=0, subject="raises", strength=_of_error(kind), expected=kind)
        return _classified(re.sub(r"\s", "", chain[1]), [*arguments[:1], *given])
    if verb == "expect":
        return None
    if arguments and arguments[0] in ("t", "self", "b"):
        arguments = arguments[1:]
    if verb.endswith((".NoError", ".Nil")) and arguments == ["err"]:
        return Assertion(line=0, subject=_failing_call(body[:first]), strength=Strength.PARTLY)
    return _classified(verb, arguments) if arguments else None


def _classified(verb: str, arguments: list[str]) -> Assertion:
    name = verb.rsplit(".", 1)[-1]
    subject, expected = (
        (arguments[0], arguments[1]) if len(arguments) > 1 else (arguments[0] if arguments else verb, "")
    )
    if _written(subject) and not _written(expected) and expected:
        subject, expected = expected, subject
    if re.search(r"(?i)closeto|indelta|almost|near|within", name):
        return Assertion(
            line=0, subject=subject, strength=Strength.EXACTLY, expected=expected, loose=_tolerance(name, arguments)
        )
    if not expected or re.fullmatch(
        r"(?i)\w*assert|assert_?true|istrue|true|tobetruthy|expect_true|assert_true|require|check", name
    ):
        return _of_condition(subject, name)
    nothing = subject == expected or (_written(subject) and _written(expected))
    strength = Strength.NOTHING if nothing else _strength(verb)
    return Assertion(line=0, subject=subject, strength=strength, expected=expected, literal=_written(expected))


def _strength(verb: str) -> Strength:
    name = verb.rsplit(".", 1)[-1]
    if _NOT.search(verb) and not _SOME.search(name):
        return Strength.SOMETHING
    if _SOME.search(name):
        return Strength.SOMETHING
    return Strength.EXACTLY if _EXACT.search(name) else Strength.PARTLY


def _tolerance(name: str, arguments: list[str]) -> float:
    """The last number given; `toBeCloseTo` counts digits, so more of them are stricter."""
    numbers = [float(a) for a in arguments[2:] if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", a)]
    if name == "toBeCloseTo":
        return float(10.0 ** -(numbers[0] if numbers else 2.0))
    return max(numbers, default=1e-6)


_OPERATORS = re.compile(r"(?<![<>=!&|])(===|!==|==|!=|<=|>=|<|>)(?![=])")


def _of_condition(condition: str, verb: str = "") -> Assertion:
    condition = _tight(condition)
    found = _OPERATORS.search(condition)
    if re.search(r"\|\|true|or\s*true|&&false", condition) or condition in ("true", "1", "1==1", "!false"):
        return Assertion(line=0, subject=_OPERATORS.split(condition)[0], strength=Strength.NOTHING)
    if not found:
        strength = Strength.SOMETHING if _SOME.search(verb) or not condition.endswith(")") else Strength.PARTLY
        return Assertion(line=0, subject=condition.lstrip("!"), strength=strength)
    left, right = condition[: found.start()], condition[found.end() :]
    if left == right:
        return Assertion(line=0, subject=left, strength=Strength.NOTHING, expected=right)
    exact = found[1] in ("==", "===")
    strength = Strength.EXACTLY if exact else Strength.SOMETHING if found[1].startswith("!") else Strength.PARTLY
    return Assertion(line=0, subject=left, strength=strength, expected=right, literal=_written(right))


def _conditional(body: str, masked: str, at: int) -> Assertion:
    """Go's way: `if got != want { t.Errorf(…) }` asserts that they are equal."""
    opened = masked.rfind("{", 0, at)
    start = max(masked.rfind("if ", 0, opened), masked.rfind("if(", 0, opened))
    if opened < 0 or start < 0 or "\n" in masked[start:opened].strip():
        return Assertion(line=0, subject="fails", strength=Strength.PARTLY)
    condition = _tight(body[start + 2 : opened].rsplit(";", maxsplit=1)[-1])
    if condition in ("false", "1!=1") or "&&false" in condition:
        return Assertion(line=0, subject=condition.split("&&")[0].split("!=")[0], strength=Strength.NOTHING)
    left, operator, right = condition.partition("!=")
    if left == "err" or condition == "err==nil":  # that there is an error, or none
        subject = _failing_call(body[:opened]) if operator else "err"
        return Assertion(line=0, subject=subject, strength=Strength.PARTLY if operator else Strength.SOMETHING)
    if kind := re.match(r"!errors\.(?:Is|As)\((?P<of>[^,]+),(?P<kind>.*)\)$", condition):
        return Assertion(line=0, subject=kind["of"], strength=Strength.EXACTLY, expected=kind["kind"])
    if not operator:
        return Assertion(line=0, subject=condition.lstrip("!"), strength=Strength.PARTLY)
    nothing = left == right
    literal = _written(right)
    return Assertion(
        line=0,
        subject=left,
        strength=Strength.NOTHING if nothing else Strength.EXACTLY,
        expected=right,
        literal=literal,
    )


def _failing_call(before: str) -> str:
    """Go: what the error that is looked at came from."""
    calls = re.findall(r"\berr\s*:?=\s*([^\n;{]+)", before)
    return f"{ERROR_OF}{_tight(calls[-1])}" if calls else "err"


def _written(text: str) -> bool:
    """Whether the value is written out: no name in it but `new`, `Some` and other words that only wrap."""
    bare = re.sub(r"""(?:f|b|r)?"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`$]*`""", "0", text)
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b0x[\da-fA-F]+|\d+(?:\.\d+)?(?:[a-z]\w*)?", "0", bare))
    return bool(text) and all(
        word in ("new", "Some", "Ok", "Err", "None", "vec", "List", "of", "Arrays", "asList", "true", "false", "null", "nil", "undefined",
                 "String", "from", "to_string", "int", "string", "float64", "e") for word in words
    )  # fmt: skip


def _dead(masked: str) -> list[tuple[int, int]]:
    """Stretches that do not count: behind `if (false)`, after a return, or in a try whose catch forgets."""
    never = re.finditer(r"\bif\s*\(?\s*(?:false|0)\s*\)?\s*\{", masked)
    found = [(branch.start(), _closing(masked, branch.end() - 1)) for branch in never]
    for block in re.finditer(r"\btry\s*\{", masked):
        last = _closing(masked, block.end() - 1)
        caught = re.match(r"\}\s*catch\s*(?:\([^)]*\))?\s*\{", masked[last:])
        if caught:
            body = masked[last + caught.end() : _closing(masked, last + caught.end() - 1)]
            if not re.search(r"\bthrow\b|\bfail\b|expect\s*\(|assert|\bt\.", body):
                found.append((block.start(), last))
    caught_whole = re.finditer(r"\brunCatching\s*\{|\bcatch_unwind\(", masked)
    found += [(block.start(), _closing(masked, block.end() - 1)) for block in caught_whole]
    if (rescued := re.search(r"^[ \t]*rescue\b", masked, re.MULTILINE)) and "raise" not in masked[rescued.end() :]:
        found.append((0, rescued.start()))
    if ends := _returns(masked):
        found.append((ends, len(masked)))
    return found


def _returns(masked: str) -> int:
    """A bare return among the test's own statements ends it."""
    depth = 0
    for found in re.finditer(r"[{}]|\breturn\s*;?\s*$", masked, re.MULTILINE):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
        elif depth <= _own_depth(masked):
            return found.start()
    return 0


def _own_depth(masked: str) -> int:
    """0 where the block begins inside its braces; 1 where a callback's brace is still to come."""
    return 1 if re.match(r"\s*,", masked) else 0
