"""Finds expected and actual values in the messages of every test framework, and in printed differences."""

# One pattern, one line.
# ruff: noqa: E501, RUF001

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import dedent

from ratchet.checks.formats.recover.prefilter import match_line, rarest
from ratchet.checks.formats.text import clip

_V = r"[ \t]*(?P<{}>\S[^\n]*?)[ \t]*"


def _value(name: str) -> str:
    return _V.format(name)


_E, _A = _value("e"), _value("a")
# In prose "to be" does not announce a value: what follows must look like one.
_LITERAL = r"(?:[^\sA-Za-z]|(?:true|false|null|undefined|nil|None|True|False|NaN|Infinity)\b|[A-Z]\w*[{(\[])"
# Quoted text is part of a value, whatever it contains.
_WHOLE = r"(?P<a>(?:[^\n'\"]|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*\")+?)"
_TEXT = r'"[^"\\]*+(?:\\.[^"\\]*+)*"'
_EQUAL = r"(?P<op>===?|!==?|<=|>=|<|>|=~|is not|is|not in|in)"

# The framework, a string that a text must contain to be searched, the pattern (e expected, a actual, op operator).
# More specific patterns come first.
# fmt: off
_COMPARISONS: list[tuple[str, str, str]] = [
    ("junit", "but was", r"expected: ?(?:[\w.$]+(?:@\w+)?)?<(?P<e>.*?)> but was: ?(?:[\w.$]+(?:@\w+)?)?<(?P<a>.*?)>(?=\s*$|\n| within| at | expected)"),
    ("junit within", "but was", r"expected: ?<(?P<e>[^\n]*?)> but was: ?<(?P<a>[^\n]*?)>"),
    ("junit lines", "but was", r"expected: ?<(?P<e>[^\0]{0,20000}?)> but was: ?<(?P<a>[^\0]{0,20000}?)>(?=\s*$|\n\s+at )"),
    ("kotlin", "ctual", r"[Ee]xpected:? ?<(?P<e>[^\n]*?)>[,.] ?[Aa]ctual:? ?<(?P<a>[^\n]*?)>"),
    ("testng", "but found", r"expected \[(?P<e>[^\n]*?)\] but found \[(?P<a>[^\n]*?)\]"),
    ("nunit", "But was:", rf"Expected:{_E}\n\s*But was:{_A}(?:\n|$)"),
    ("nunit in one line", "But was:", rf"Expected:{_E} {{2,}}But was:{_A}(?:\n|$)"),
    ("assertj size", "size:", r"[Ee]xpected size: ?<?(?P<e>\d+)>? but was: ?<?(?P<a>\d+)>?"),
    ("mbunit", "]]!=[[", r"\[\[(?P<e>[^\n]*?)\]\]!=\[\[(?P<a>[^\n]*?)\]\]"),
    ("hamcrest", "but:", r"Expected: (?:is )?(?P<e>[^\n]+)\n\s*but: (?:was )?(?P<a>[^\n]+)"),
    ("hamcrest old", " got:", r"Expected: (?:is )?(?P<e>[^\n]+)\n\s+got: (?P<a>[^\n]+)"),
    ("assertj", "Expecting actual", rf"Expecting actual:\n{_A}\n\s*to be equal to:\s*\n{_E}(?:\n|$)"),
    ("assertj old", "Expecting", r"Expecting:?\n\s*<(?P<a>[^\n]*)>\n\s*to be equal to:\s*\n\s*<(?P<e>[^\n]*)>"),
    ("assertj 3", "but was", rf"expected:{_E}\n\s*but was ?:{_A}(?:\n|$)"),
    ("gtest equal", "Expected equality", r"Expected equality of these values:\n {2}(?P<v1>[^\n]+)\n(?: {4}Which is: (?P<w1>[^\n]+)\n)? {2}(?P<v2>[^\n]+)(?:\n {4}Which is: (?P<w2>[^\n]+))?"),
    ("gtest truth", "Value of: ", r"Value of: [^\n]+\n +Actual: (?P<a>[^\n]+)\nExpected: (?P<e>[^\n]+)"),
    ("gtest compare", ", actual: ", r"Expected: \((?P<l>[^\n]+)\) (?P<op>[=!<>]+) \([^\n]+\), actual: (?P<a>[^\n]+?) vs (?P<e>[^\n]+)"),
    ("boost", " failed [", r"check (?P<l>[^\n]+?) (?P<op>[=!<>]=|<|>) [^\n]+? failed \[(?P<a>[^\n]+?) [=!<>]+ (?P<e>[^\n]+?)\](?:\n|$)"),
    ("check", "Assertion '", r"Assertion '[^\n]+' failed: [^\n]+? == (?P<a>[^\n,]+), [^\n]+? == (?P<e>[^\n]+)"),
    ("cmocka", "[  ERROR   ]", r"\[  ERROR   \] --- (?P<a>\S+) != (?P<e>\S+)(?:\n|$)"),
    ("qt", "Compared values", r"Actual +\([^\n]*?\) *: (?P<a>[^\n]+)\n\s*Expected +\([^\n]*?\) *: (?P<e>[^\n]+)"),
    ("cppunit", "- Actual", r"- Expected ?: (?P<e>[^\n]+?)\s*- Actual {0,2}: (?P<a>[^\n]+)"),
    ("gomega", "\nto ", r"Expected\n\s+<[^\n>]+>: (?P<a>[^\n]+)\nto (?P<op>equal|be equivalent to|be identical to|be ==|be numerically [^\n]+?|contain element matching|contain substring)\n\s+<[^\n>]+>: (?P<e>[^\n]+)"),
    ("mocha diff", "+ expected - actual", r"\+ expected - actual\s*?\n\s*\n *-(?P<a>[^\n]+)\n *\+(?P<e>[^\n]+)(?:\n\s*\n|\s*$)"),
    ("catch2 texts", "with expansion:", rf"with expansion:\n\s*(?P<a>{_TEXT})\s+{_EQUAL}\s+(?P<e>{_TEXT})"),
    ("catch2", "with expansion:", rf"with expansion:\n\s*(?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+)"),
    ("doctest c++", "values: ", rf"values: \w+\( (?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+?) \)(?:\n|$)"),
    ("rust", "right", r"assertion `?(?:failed: `)?\(?left (?P<op>[=!]=) right\)?`(?: failed)?[^\n]*\n\s*left: `?(?P<a>[^\n]*?)`?,?\n\s*right: `?(?P<e>[^\n]*?)`?(?:'?, [^\n]*:\d+:\d+)?(?:\n|$)"),
    ("exunit", "right:", rf"(?:code: +\w+ [^\n]*? (?P<op>[=!<>~]=+|[<>]) [^\n]*\n)?\s*left: {_A}\n\s*right: {_E}(?:\n|$)"),
    ("xunit diff", "Actual:", rf"Expected:{_E}\n\s*Actual:{_A}(?:\n|$)"),
    ("mstest", "Actual:<", r"Expected:<(?P<e>[^\n]*?)>\. Actual:<(?P<a>[^\n]*?)>"),
    ("jest", "Expected", r"Expected(?: value| substring| pattern| length| path| property| constructor| message| to [a-z ]{1,40})?: (?:not )?(?P<e>[^\n]+)\n(?:[^\n]*\n)??\s*(?:Received(?: value| string| array| length| path| object| property| constructor| message)?|Actual): +(?P<a>[^\n]+)"),
    ("busted", "Passed in:", r"Passed in:\n\s*(?:\(\w+\) )?(?P<a>[^\n]+)\n\s*Expected:\n\s*(?:\(\w+\) )?(?P<e>[^\n]+)"),
    ("busted old", "Passed in:", r"Expected:\n\s*\(\w+\) (?P<e>[^\n]+)\n\s*Passed in:\n\s*\(\w+\) (?P<a>[^\n]+)"),
    ("testify", "actual", rf"expected ?:{_E}\n\s*actual ?\s?:{_A}(?:\n|$)"),
    ("rspec mock", "received:", r"expected: (?P<e>\d+ times?[^\n]*)\n\s*received: (?P<a>\d+ times?[^\n]*)"),
    ("rspec truth", "\n", r"expected (?P<e>true|false|truthy value|falsey value|nil)\n\s+got:? (?P<a>[^\n]+)"),
    ("rspec", "got:", rf"expected:{_E}\n\s*got:{_A}(?:\n|$)"),
    ("perl", "got:", rf"got:{_A}\n#?\s*expected:{_E}(?:\n|$)"),
    ("perl lines", "got:", r"got: (?P<a>'(?s:.*?)')\n#?\s*expected: (?P<e>'(?s:.*?)')[ \t]*(?:\n|$)"),
    ("perl like", "doesn't match", r"\n#?[ \t]*(?P<a>'[^\n]*'|undef)\n#?[ \t]*doesn't match '(?P<e>[^\n]+)'"),
    ("perl compare", "Failed test", r"\n#?[ \t]*(?P<a>'[^\n]*'|undef|-?\d[^\n]*)\n#?[ \t]+(?P<op>[=!<>]=|[<>]|eq|ne|lt|gt|le|ge)\n#?[ \t]*(?P<e>'[^\n]*'|undef|-?\d[^\n]*)(?:\n|$)"),
    ("test2", "| GOT ", r"\|(?P<p> PATH +\|(?P<n> LNs +\|)?)? GOT +\| OP +\| CHECK +\|[^\n]*\n[^\n]*\n\|(?(p) [^|\n]*\|)(?(n) [^|\n]*\|) (?P<a>[^|\n]*?) *\| (?P<op>[^|\n]*?) *\| (?P<e>[^|\n]*?) *\|"),
    ("want after got", "want", rf"got ?:{_A}\n\s*want ?:{_E}(?:\n|$)"),
    ("got after want", "want", rf"want ?:{_E}\n\s*got ?:{_A}(?:\n|$)"),
    ("bats-assert", "actual   :", rf"expected :{_E}\n(?:#? *)actual   :{_A}(?:\n|$)"),
    ("bats", "' failed", r"`(?P<shell>\[\[?) \"?(?P<a>[^\n]+?)\"? (?P<op>-eq|-ne|-lt|-le|-gt|-ge|==?|!=|=~) \"?(?P<e>[^\n$\"]+)\"? \]\]?' failed"),
    ("phpunit size", "Failed asserting that", r"actual size (?P<a>\d+) matches expected size (?P<e>\d+)"),
    ("phpunit exception", "Failed asserting that", r'exception of type "(?P<a>[^"\n]+)" matches expected exception "(?P<e>[^"\n]+)"'),
    ("phpunit unlike", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) (?P<op>is not identical to|is not equal to|is (?:equal to or )?(?:greater|less) than|does not contain|contains|matches PCRE pattern) (?P<e>[^\n]+?)\.?(?:\n|$)"),
    ("phpunit kind", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) is (?P<e>(?:not )?(?:true|false|null|empty)|(?:an instance|of type)[^\n]+?)\.?(?:\n|$)"),
    ("phpunit identical", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) (?:matches expected|is identical to|is equal to) (?P<e>[^\n]+?)\.?(?:\n|$)"),
    ("phpunit diff", "+++ Actual", r"--- Expected\n\+\+\+ Actual\n@@ @@\n-(?P<e>[^\n]*)\n\+(?P<a>[^\n]*)"),
    ("swift", "XCTAssert", r'XCTAssert\w+ failed: \((?:"|&quot;)(?P<a>[^\n]*?)(?:"|&quot;)\) is not (?P<op>equal) to \((?:"|&quot;)(?P<e>[^\n]*?)(?:"|&quot;)\)'),
    ("swift testing", "Expectation failed", rf"Expectation failed: \([^\n]*? → (?P<a>[^\n)]+)\) {_EQUAL} (?P<e>[^\n]+)"),
    ("node", "Expected values to be", r"(?P<failed>Expected) values to be (?:strictly |loosely )?(?:deep-)?equal:\s*\n\s*\n?(?P<a>(?:[^\n+-]|-\d)[^\n]*?) (?P<op>!==?) (?P<e>[^\n]+?)\s*(?:\n|$)"),
    ("node diff", "+ actual - expected", r"\+ actual - expected[^\n]*\n\s*\n?\+ (?P<a>[^\n]+)\n- (?P<e>[^\n]+)"),
    ("jest assert", "Received:", r"Expected value to [^\n]*:\s*\n\s+(?P<e>[^\n]+)\n(?:[^\n]*\n)??Received:\s*\n\s+(?P<a>[^\n]+)"),
    ("perl deep", "$got", r"\$got\S* = (?P<a>[^\n]+)\n#?\s*\$expected\S* = (?P<e>[^\n]+)"),
    ("vitest diff", "+ Received", r"- Expected[^\n]*\n\+ Received[^\n]*\n\s*\n- (?P<e>[^\n]+)\n\+ (?P<a>[^\n]+)\n(?:\n|$)"),
    ("chai", " to ", r"[Ee]xpected (?!values? to )(?P<a>[^\n]+?) to (?P<op>(?:strictly |deeply |loosely )*equal|deep equal|eql)(?: to)? (?P<e>[^\n]+?)\.?(?: // [^\n]*)?(?:\n|$)"),
    ("chai be", " to ", rf"[Ee]xpected (?P<a>{_LITERAL}[^\n]*?) to (?P<op>be|include|match)(?: to)? (?P<e>[^\n]+?)\.?(?: // [^\n]*)?(?:\n|$)"),
    ("scalatest", "did not equal", r"(?:^|\n)(?:[\w.]+Exception: )?(?P<a>[^\n]+?) (?P<op>did not equal) (?P<e>[^\n]+?)(?: \([\w.]+:\d+\))?(?:\n|$)"),
    ("munit", "=> Obtained", r"values are not the same\n=> Obtained\n(?P<a>[^\n]+)\n=> Diff[^\n]*\n-[^\n]*\n\+(?P<e>[^\n]+)"),
    ("unittest texts", "AssertionError: ", rf"(?:^|\n) *(?:E +)?(?P<failed>AssertionError: )(?!assert ){_WHOLE} (?P<op>!=|not (?:less|greater) than(?: or equal to)?|is not|not found in) (?P<e>['\"\[{{(][^\n]*?)(?: : [^\n]*)?(?:\n|$)"),
    ("unittest", "AssertionError: ", r"(?:^|\n) *(?:E +)?(?P<failed>AssertionError: )(?!assert )(?P<a>[^\n]+?) (?P<op>!=|not (?:less|greater) than(?: or equal to)?|is not|not found in) (?P<e>[^\n]+?)(?: : [^\n]*)?(?:\n|$)"),
    ("pytest texts", "assert ", rf"(?:^|\n)(?:E +(?:AssertionError: )?|AssertionError: )?assert (?!not ){_WHOLE} {_EQUAL} (?P<e>[^\n]+?)(?:\n|$)"),
    ("pytest", "assert ", rf"(?:^|\n)(?:E +(?:AssertionError: )?|AssertionError: )?assert (?!not )(?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+?)(?:\n|$)"),
    ("unity", " Was ", r"Expected (?P<e>[^\n]+?) Was (?P<a>[^\n]+?)\.?(?:\n|$)"),
    ("zig", ", found ", r"expected (?P<e>[^\n]+?), found (?P<a>[^\n]+?)(?:\n|$)"),
    ("want", "ant", r"[Ww]ant(?:ed)?[: =]+(?P<e>[^\n]+?)[,;]? (?:but )?(?:got|have)[: =]+(?P<a>[^\n]+?)(?:\n|$)"),
    ("got", "t", r"(?:[Gg]ot|[Hh]ave(?=:)|Actual|Received|=)[: =]* ?(?P<a>[^\n]+?)[,;:]? (?:but )?(?:want(?:ed)?|expect(?:ed|ing)?)[: =]+(?P<e>[^\n]+?)(?:\n|$)"),
    ("expected got", "xpect", r"[Ee]xpect(?:ed|ing)(?!(?: values?)? to )[: =]+(?P<e>[^\n]+?)(?: ?[,;.]? (?:but )?(?:actual(?:ly)?|got|found|received|[Rr]esult)|(?:[,;]|,? but) (?:it )?(?:was|is))(?: :)?[: =]+(?P<a>[^\n]+?)\.?(?: \(compared using \S+\))?[ \t]*(?:\n|$)"),
    ("nim", "Check failed", r"Check failed: (?P<l>[^\n]+?) (?P<op>==) (?P<e>[^\n]+)\n\s*(?P=l) was (?P<a>[^\n]+)"),
]
# fmt: on
# All other patterns match only texts about something expected.
_EXPECTS_NOTHING = {
    "boost",
    "check",
    "cmocka",
    "catch2",
    "catch2 texts",
    "doctest c++",
    "rust",
    "exunit",
    "perl like",
    "perl compare",
    "test2",
    "want after got",
    "got after want",
    "bats",
    "phpunit unlike",
    "phpunit kind",
    "phpunit identical",
    "swift",
    "scalatest",
    "munit",
    "mbunit",
    "unittest",
    "unittest texts",
    "pytest",
    "pytest texts",
    "want",
    "got",
    "nim",
}  # fmt: skip
# Patterns that begin a line and contain the string are matched only against lines with it.
_BEGINS_A_LINE = r"(?:^|\n)"


def _rule(needle: str, pattern: str) -> tuple[str, str, re.Pattern[str], bool]:
    is_line = pattern.startswith(_BEGINS_A_LINE)
    return rarest(needle), needle, re.compile(pattern.removeprefix(_BEGINS_A_LINE)), is_line


_RULES = [_rule(needle, pattern) for _, needle, pattern in _COMPARISONS]
_UNEXPECTED = [rule for rule, (name, _, _) in zip(_RULES, _COMPARISONS, strict=True) if name in _EXPECTS_NOTHING]


def comparison(text: str) -> tuple[str | None, str | None, str]:
    """Return expected, actual and operator, or None. The left value is the actual one unless the framework differs."""
    for sign, needle, pattern, is_line in _RULES if "x" in text and "xpect" in text else _UNEXPECTED:
        if sign in text and needle in text:
            found = match_line(pattern, text, needle) if is_line else pattern.search(text)
            if found:
                return _compared(found, pattern.groupindex)
    return None, None, ""


def _compared(found: re.Match[str], groups: Mapping[str, int]) -> tuple[str, str | None, str]:
    expected, actual = (found["e"], _quoted(found, "a")) if "e" in groups else _gtest(found)
    expected, actual = _unwrapped(expected.strip(), actual.strip())
    operator = (found["op"] or "") if "op" in groups else ""
    operator = _FAILED.get(operator, operator) if "failed" in groups else operator
    # A shell expands before it compares: the source's left side is not the value.
    if "$" in actual and "shell" in groups:
        return clip(expected), None, _OPERATORS.get(operator, operator)
    return clip(expected), clip(actual), _OPERATORS.get(operator, operator)


# Frameworks that print the condition that did not hold: the value it should have had.
_FAILED = {
    "!=": "==",
    "!==": "===",
    "is not": "is",
    "not less than": "<",
    "not greater than": ">",
    "not less than or equal to": "<=",
    "not greater than or equal to": ">=",
    "not found in": "in",
}
_OPERATORS = {
    "-eq": "==",
    "-ne": "!=",
    "-lt": "<",
    "-le": "<=",
    "-gt": ">",
    "-ge": ">=",
    "=": "==",
    "is not identical to": "!=",
    "is not equal to": "!=",
    "is greater than": ">",
    "is less than": "<",
    "is equal to or greater than": ">=",
    "is equal to or less than": "<=",
}


_END_OF_QUOTE = re.compile(r'"[ \t]*(?:\n|$)')


def _quoted(found: re.Match[str], group: str) -> str:
    """Return a value; all lines of a quoted text."""
    value = found[group]
    if not value.startswith('"') or value.count('"') > 1:
        return value
    end = _END_OF_QUOTE.search(found.string, found.end(group))
    return found.string[found.start(group) : end.end()] if end else value


def _unwrapped(expected: str, actual: str) -> tuple[str, str]:
    """Remove the angle brackets that Hamcrest and Dart put around values that are not strings."""
    if expected[:1] == actual[:1] == "<" and expected[-1:] == actual[-1:] == ">":
        return expected[1:-1], actual[1:-1]
    return expected, actual


def _gtest(found: re.Match[str]) -> tuple[str, str]:
    """Return the sides of a GoogleTest comparison: the computed one (`Which is`) is the actual value."""
    first, second = found["w1"] or found["v1"], found["w2"] or found["v2"]
    return (first, second) if found["w2"] and not found["w1"] else (second, first)


_DIFF = re.compile(
    r"(?:^--- Expected\n\+\+\+ Actual\n|^[+-] (?:Expected|actual|Received)[^\n]*\n(?:[+-] (?:Received|Expected)[^\n]*\n)?|^Diff:\n|^@@ [^\n]*@@\n)"
    r"(?P<diff>(?:[ ]*[-+@ |][^\n]*\n|\n)+)",
    re.M,
)
# bun explains its signs below the difference.
_BEFORE_ITS_LEGEND = re.compile(r"^\n(?P<diff>(?:[-+ @][^\n]*\n)+)\n- Expected  - \d+\n\+ Received  \+ \d+\n", re.M)


def diff(text: str) -> str:
    if not [needle for sign, needle in _DIFF_NEEDLES if sign in text and needle in text]:
        return ""
    found = _BEFORE_ITS_LEGEND.search(text + "\n") or _DIFF.search(text + "\n")
    rows = found.group("diff").strip("\n").splitlines() if found else []
    end = next((index for index, row in enumerate(rows) if _AFTER_DIFF.match(row)), len(rows))
    return clip("\n".join(rows[:end]).strip("\n"), 4000)


_DIFF_NEEDLES = [
    (rarest(needle), needle) for needle in ("Actual\n", "Received", "+ actual", "- Expected", "Diff:", "@@ ")
]
_AFTER_DIFF = re.compile(r"\s*(?:❯ |at |# \.?/|[\w./-]+:\d+)")


def sides(changes: str) -> tuple[str | None, str | None]:
    """Return both values from a difference: in every runner that prints one, minus is expected and plus is actual."""
    rows = [row for row in changes.splitlines() if not row.startswith("@@")]
    signs = {row[:1] for row in rows}
    # If one side only adds lines, both values need the common ones.
    if not signs >= {"+", "-"} and not (signs > {" "} and signs & {"+", "-"}):
        return None, None
    expected = [row[1:] for row in rows if not row.startswith("+")]
    actual = [row[1:] for row in rows if not row.startswith("-")]
    return dedent("\n".join(expected)).strip("\n"), dedent("\n".join(actual)).strip("\n")


def uncompacted(value: str) -> str:
    """Remove the brackets that JUnit 4 puts around differences; what it replaced by dots is lost."""
    return value.replace("[", "", 1).replace("]", "", 1) if value.count("[") == value.count("]") == 1 else value
