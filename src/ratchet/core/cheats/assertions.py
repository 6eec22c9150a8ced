"""Parses assertions of many languages and libraries: subject, expected value, and strength."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from ratchet.core.cheats.masked_source import arguments as arguments_in
from ratchet.core.cheats.masked_source import closing, tight
from ratchet.core.cheats.reachability import dead, is_unawaited, unawaited_callbacks
from ratchet.core.cheats.test_cases import ERROR_OF, Assertion, AssertionStrength

_ASSERTING = re.compile(
    r"(?<![\w$])(?:[\w$]+(?:\.|->|::))*?(?P<verb>expect(?:Exception\w*|Equal\w*|Error|ApproxEq\w*)?|assert\w*|should|t\.(?:is|deepEqual|true|throws|like|truthy|not)"
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


def before_asserting(masked: str) -> int:
    """Return the offset of the first assertion."""
    first = _ASSERTING.search(masked)
    return first.start() if first else len(masked)


def assertions(body: str, masked: str, line: int) -> Iterator[Assertion]:
    never = [*dead(masked), *unawaited_callbacks(masked)]
    bare = "\n".join(tight(row) for row in body.split("\n"))
    for at, made in _all(body, masked):
        nothing = any(first <= at < last for first, last in never) or _is_itself(made, bare)
        yield with_reachability(made, line + masked.count("\n", 0, at), nothing)


def _is_itself(made: Assertion, bare: str) -> bool:
    """Return whether a name is compared with its own source: `got := f(); got != f()`."""
    named = re.fullmatch(r"[A-Za-z_]\w*", made.subject) and "(" in made.expected
    return bool(named) and bool(re.search(rf"\b{made.subject}:?={re.escape(made.expected)}(?![\w.(])", bare))


def _all(body: str, masked: str) -> Iterator[tuple[int, Assertion]]:
    """Yield all assertions with their offsets, notation by notation."""
    for found in _ASSERTING.finditer(masked):
        if made := _assertion(found, body, masked):
            yield found.start(), made
    for found in _FAILING.finditer(masked):
        yield found.start(), _conditional(body, masked, found.start())
    for found in _WORDS_ASSERTING.finditer(masked):
        first, last = found.span("what")
        yield found.start(), _word_assertion(body[first:last], masked[first:last], found["verb"])
    for found in _INFIX.finditer(masked) if "hould" in masked else ():
        subject, expected = (tight(body[found.start(name) : found.end(name)]) for name in ("subject", "expected"))
        yield found.start(), _matched(found["verb"], subject, expected)


# Kotest's `x shouldBe y`, and `x.Should().Be(y)`: the subject comes first, and the verb has no parentheses of its own.
_INFIX = re.compile(
    r"^[ \t]*(?P<subject>\S[^\n{};]*?)(?:[ \t](?=should[A-Z])|\.Should\(\)\.)(?P<verb>\w+)[ (]+(?P<expected>[^\n;]*?)\)?;?[ \t]*$",
    re.MULTILINE,
)


def _word_assertion(what: str, hidden: str, verb: str) -> Assertion:
    """Parse Ruby's `assert_equal 3, x`."""
    arguments = arguments_in(what, hidden, 0, len(hidden))
    if verb and len(arguments) > 1:
        return _classified(f"assert{verb}", arguments)
    return of_condition(what, verb)


def _matched(verb: str, subject: str, expected: str) -> Assertion:
    """Derive the strength from the name of a matcher."""
    strength = AssertionStrength.PARTLY
    if re.search(r"(?i)not|truthy|be_an?$|present|kind_of|instance", verb) or expected in ("null", "nil"):
        strength = AssertionStrength.SOMETHING
    elif re.search(r"(?i)^eq|equal|^be$|shouldbe$|match_array|contain_exactly|containexactly", verb):
        strength = AssertionStrength.EXACTLY
    if "raise" in verb or "throw" in verb.lower():
        strength = _of_error(expected)
    return Assertion(line=0, subject=subject, strength=strength, expected=expected, literal=_written(expected))


_BROAD = re.compile(
    r"^\\?(?:java\.lang\.|System\.)?(?:Exception|Throwable|RuntimeException|Error|StandardError|BaseException)(?:\.class|::class(?:\.java)?)?$"
)


def _of_error(kind: str) -> AssertionStrength:
    """Return the strength: any error, an error of a class, or an error with a message."""
    if not kind or _BROAD.match(kind):
        return AssertionStrength.SOMETHING
    return AssertionStrength.EXACTLY if kind[0] in "\"'/`" else AssertionStrength.PARTLY


def with_reachability(made: Assertion, line: int, dead: bool) -> Assertion:
    strength = AssertionStrength.NOTHING if dead else made.strength
    return Assertion(
        line=line,
        subject=made.subject,
        strength=strength,
        expected=made.expected,
        literal=made.literal,
        loose=made.loose,
    )


class _Call(NamedTuple):
    """An asserting call: verb, type in angle brackets, arguments, and where the arguments begin and end."""

    verb: str
    of: str
    body: str
    masked: str
    first: int
    last: int
    arguments: list[str]

    @property
    def behind(self) -> str:
        return self.masked[self.last :]


def _assertion(found: re.Match[str], body: str, masked: str) -> Assertion | None:
    first, last = found.end(), closing(masked, found.end() - 1)
    arguments = arguments_in(body, masked, first, last)
    call = _Call(found["verb"], found["of"] or "", body, masked, first, last, arguments)
    ways = (_of_answer, _to_matcher, _of_raising, _like_pattern, _chained, _plain)
    made = next((made for way in ways if (made := way(call))), None)
    return made and with_reachability(made, 0, is_unawaited(body, masked, found.start(), last))


def _of_answer(call: _Call) -> Assertion | None:
    """Parse supertest's `.expect(200)`."""
    if call.verb != "expect" or not call.arguments or not re.search(r"\.expect\s*$", call.masked[: call.first - 1]):
        return None
    subject, expected = f"answer {call.arguments[0]}", "".join(call.arguments[1:])
    return Assertion(line=0, subject=subject, strength=AssertionStrength.EXACTLY, expected=expected)


def _to_matcher(call: _Call) -> Assertion | None:
    """Parse RSpec's `expect(x).to eq 3`."""
    to = re.match(r"\)\s*\.(?P<to>to|not_to|to_not)\s+(?P<verb>\w+)(?:\s+|\(|$)(?P<expected>[^\n]*)", call.behind)
    if call.verb != "expect" or not to or not call.arguments:
        return None
    wanted = call.body[call.last + to.start("expected") : call.last + to.end("expected")].rstrip(") ")
    return _matched(("not_" if to["to"] != "to" else "") + to["verb"], call.arguments[0], tight(wanted))


_INSTANCE_OF = re.compile(r"^\{instanceOf:(?P<kind>\w+),?\}$")


def _of_raising(call: _Call) -> Assertion | None:
    if not re.search(r"(?i)throws|^expectException$|raises", call.verb.rsplit(".", 1)[-1]):
        return None
    given = [_INSTANCE_OF.sub(r"\g<kind>", word) for word in call.arguments]
    kinds = [word for word in given if not re.search(r"\(\)|=>|->|\{", word)]
    return _raised(next((word for word in ([call.of.strip("<>")] if call.of else kinds) if word not in _SELVES), ""))


def _raised(kind: str) -> Assertion:
    return Assertion(line=0, subject="raises", strength=_of_error(kind), expected=kind)


def _like_pattern(call: _Call) -> Assertion | None:
    """Parse Rust's `assert!(matches!(x, Some(3)))`."""
    pattern = re.match(r"matches!\((?P<of>.*),(?P<like>.*)\)$", call.arguments[0] if call.arguments else "")
    if not call.verb.endswith("assert") or not pattern:
        return None
    whole = AssertionStrength.PARTLY if re.search(r"[(,{]_[),}]|\.\.", pattern["like"]) else AssertionStrength.EXACTLY
    return Assertion(line=0, subject=pattern["of"], strength=whole, expected=pattern["like"])


_RAISING = ("assertThatThrownBy", "assertThatExceptionOfType")  # AssertJ's
_CHAINED = ("expect", "assertThat", "should", *_RAISING)


def _chained(call: _Call) -> Assertion | None:
    """Parse `expect(x).toBe(3)`, `assertThat(x).isEqualTo(3)`."""
    chain = re.match(r"\)\s*((?:\s*(?:\.|->)\s*\w+)+)\s*(\(?)", call.behind)
    if call.verb.split(".", maxsplit=1)[0] not in _CHAINED or not chain:
        return None
    inner = call.last + chain.end()
    given = arguments_in(call.body, call.masked, inner, closing(call.masked, inner - 1)) if chain[2] else []
    if re.search(r"(?i)throw", chain[1]) and "not" not in chain[1]:
        return _raised(given[0] if given else "")
    if call.verb in _RAISING:
        kind = given[0] if given and re.search(r"(?i)instance|type", chain[1]) else (call.arguments or [""])[0]
        with_message = re.search(r"\.(?:has|with)Message\w*\(", call.behind.partition(";")[0])
        exactly = {"strength": AssertionStrength.EXACTLY} if with_message else {}
        return msgspec.structs.replace(_raised(kind), **exactly)
    return _classified(re.sub(r"\s", "", chain[1]), [*call.arguments[:1], *given])


_SELVES = ("t", "self", "b")


def _plain(call: _Call) -> Assertion | None:
    """Parse `assertEquals(3, x)`, `require.NoError(t, err)`."""
    if call.verb == "expect":
        return None
    arguments = call.arguments[1:] if call.arguments[:1] and call.arguments[0] in _SELVES else call.arguments
    if call.verb.endswith((".NoError", ".Nil")) and arguments == ["err"]:
        return Assertion(line=0, subject=_failing_call(call.body[: call.first]), strength=AssertionStrength.PARTLY)
    return _classified(call.verb, arguments) if arguments else None


_PART_OF = re.compile(
    r"^(?:typeof\(?(?P<typed>.+?)\)?|(?P<many>[\w$.\[\]()]+?)\.(?:len\(\)|length(?:\(\))?|size(?:\(\))?|Count(?:\(\))?|count(?:\(\))?|Length)|(?:len|count)\((?P<counted>[^()]+)\))$"
)


def _classified(verb: str, arguments: list[str]) -> Assertion:
    name = verb.rsplit(".", 1)[-1]
    subject, expected = (
        (arguments[0], arguments[1]) if len(arguments) > 1 else (arguments[0] if arguments else verb, "")
    )
    if _written(subject) and not _written(expected) and expected:
        subject, expected = expected, subject
    if name.endswith("_THAT") and expected:
        exact = (
            AssertionStrength.EXACTLY
            if re.search(r"Eq|ElementsAre|Pointee|^Is\(|^\d", expected)
            else AssertionStrength.PARTLY
        )
        return Assertion(line=0, subject=subject, strength=exact, expected=expected, literal=False)
    if part := _PART_OF.match(subject):  # checking the type or the number of items is weaker than checking the value
        typed = part["typed"] is not None
        found = _classified(verb, [part["typed"] or part["many"] or part["counted"], *([expected] if expected else [])])
        most = AssertionStrength.SOMETHING if typed else AssertionStrength.PARTLY
        return msgspec.structs.replace(found, strength=min(found.strength, most))
    if re.search(r"(?i)closeto|indelta|almost|near|within", name):
        return Assertion(
            line=0,
            subject=subject,
            strength=AssertionStrength.EXACTLY,
            expected=expected,
            loose=_tolerance(name, arguments),
        )
    if not expected or re.fullmatch(
        r"(?i)\w*assert|assert_?true|istrue|true|tobetruthy|expect_true|assert_true|require|check", name
    ):
        return of_condition(subject, name)
    nothing = subject == expected or (_written(subject) and _written(expected))
    strength = AssertionStrength.NOTHING if nothing else min(_strength(verb), _most_of(expected))
    return Assertion(line=0, subject=subject, strength=strength, expected=expected, literal=_written(expected))


def _most_of(expected: str) -> AssertionStrength:
    """Return how much a matcher in place of the wanted value lets be checked."""
    if re.match(r"expect\.(?:any\w*|anything)\(|(?:mock\.)?ANY$", expected):
        return AssertionStrength.SOMETHING
    return (
        AssertionStrength.PARTLY
        if re.match(r"expect\.\w+(?:Containing|Matching)\(", expected)
        else AssertionStrength.EXACTLY
    )


def _strength(verb: str) -> AssertionStrength:
    name = verb.rsplit(".", 1)[-1]
    if re.search(r"\.(?:be|is)\.an?$", verb):  # Chai's `to.be.a("function")`
        return AssertionStrength.SOMETHING
    if _NOT.search(verb) and not _SOME.search(name):
        return AssertionStrength.SOMETHING
    if _SOME.search(name):
        return AssertionStrength.SOMETHING
    return AssertionStrength.EXACTLY if _EXACT.search(name) else AssertionStrength.PARTLY


def _tolerance(name: str, arguments: list[str]) -> float:
    """Return the last number given; `toBeCloseTo` counts digits, where more is stricter."""
    numbers = [float(a) for a in arguments[2:] if re.fullmatch(r"-?[\d.]+(?:e-?\d+)?", a)]
    if name == "toBeCloseTo":
        return float(10.0 ** -(numbers[0] if numbers else 2.0))
    return max(numbers, default=1e-6)


_OPERATORS = re.compile(r"(?<![<>=!&|])(===|!==|==|!=|<=|>=|<|>)(?![=])")


def of_condition(condition: str, verb: str = "") -> Assertion:
    condition = tight(condition)
    found = _OPERATORS.search(condition)
    if re.search(r"\|\|true|or\s*true|&&false", condition) or condition in ("true", "1", "1==1", "!false"):
        return Assertion(line=0, subject=_OPERATORS.split(condition)[0], strength=AssertionStrength.NOTHING)
    if not found:
        strength = (
            AssertionStrength.SOMETHING
            if _SOME.search(verb) or not condition.endswith(")")
            else AssertionStrength.PARTLY
        )
        return Assertion(line=0, subject=condition.lstrip("!"), strength=strength)
    left, right = condition[: found.start()], condition[found.end() :]
    if left == right:
        return Assertion(line=0, subject=left, strength=AssertionStrength.NOTHING, expected=right)
    exact = found[1] in ("==", "===")
    strength = (
        AssertionStrength.EXACTLY
        if exact
        else AssertionStrength.SOMETHING
        if found[1].startswith("!")
        else AssertionStrength.PARTLY
    )
    return Assertion(line=0, subject=left, strength=strength, expected=right, literal=_written(right))


def _conditional(body: str, masked: str, at: int) -> Assertion:
    """Parse Go's `if got != want { t.Errorf(…) }`, which asserts equality."""
    opened = masked.rfind("{", 0, at)
    start = max(masked.rfind("if ", 0, opened), masked.rfind("if(", 0, opened))
    if opened < 0 or start < 0 or "\n" in masked[start:opened].strip():
        return Assertion(line=0, subject="fails", strength=AssertionStrength.PARTLY)
    first = max(start + 2, masked.rfind(";", start, opened) + 1)
    condition = tight(body[first:opened])
    if condition in ("false", "1!=1") or "&&false" in condition:
        return Assertion(line=0, subject=condition.split("&&")[0].split("!=")[0], strength=AssertionStrength.NOTHING)
    left, operator, right = condition.partition("!=")
    if left == "err" or condition == "err==nil":  # an error is expected, or none
        subject = _failing_call(body[:opened]) if operator else "err"
        return Assertion(
            line=0, subject=subject, strength=AssertionStrength.PARTLY if operator else AssertionStrength.SOMETHING
        )
    if kind := re.match(r"!errors\.(?:Is|As)\((?P<of>[^,]+),(?P<kind>.*)\)$", condition):
        return Assertion(line=0, subject=kind["of"], strength=AssertionStrength.EXACTLY, expected=kind["kind"])
    if not operator:
        return Assertion(line=0, subject=condition.lstrip("!"), strength=AssertionStrength.PARTLY)
    nothing = left == right
    literal = _written(right)
    return Assertion(
        line=0,
        subject=left,
        strength=AssertionStrength.NOTHING if nothing else AssertionStrength.EXACTLY,
        expected=right,
        literal=literal,
    )


def _failing_call(before: str) -> str:
    """Return the call that the checked error comes from, in Go."""
    calls = re.findall(r"\berr\s*:?=\s*([^\n;{]+)", before)
    return f"{ERROR_OF}{tight(calls[-1])}" if calls else "err"


def _written(text: str) -> bool:
    """Return whether the value is a literal: it contains no names except `new`, `Some` and other wrappers."""
    text = re.sub(r"@as\(\w+,([^()]*)\)", r"\1", text)
    bare = re.sub(r"""(?:f|b|r)?"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`$]*`""", "0", text)
    words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\b0x[\da-fA-F]+|\d+(?:\.\d+)?(?:[a-z]\w*)?", "0", bare))
    return bool(text) and all(
        word in ("new", "Some", "Ok", "Err", "None", "vec", "List", "of", "Arrays", "asList", "true", "false", "null", "nil", "undefined",
                 "String", "from", "to_string", "int", "string", "float64", "e") for word in words
    )  # fmt: skip
