"""What a failure's text says and its channel does not: expected and actual, file and line, frames inside the project."""

# One pattern, one line.
# ruff: noqa: E501, RUF001

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from textwrap import dedent

from ratchet.checks.formats.text import clip, first_line, plain
from ratchet.core.report import Failure, Frame

_SCAN = 32 << 10  # a comparison or a stack that begins later than this is not worth the search
_WIDE = 1000  # longer lines are data, not prose; no pattern looks at them
_MOST_FRAMES = 12


def failure(
    body: str,
    *,
    message: str = "",
    type: str = "",
    file: str = "",
    line: int = 0,
    expected: str | None = None,
    actual: str | None = None,
    operator: str = "",
) -> Failure:
    """A failure from what the channel gave (the keywords, which win) and what its text gives away."""
    body, message = plain(body), plain(message)
    searched = _ends(body if message in body else f"{message}\n{body}")
    prose, calls = _apart(searched)
    prose = _narrow(prose)
    changes = diff(prose) if "\n" in prose else ""
    if expected is None and actual is None:
        expected, actual, found = comparison(prose)
        operator = operator or found
    if expected is None and actual is None and changes:
        expected, actual = _sides(changes)
    if expected and actual and type.endswith("ComparisonFailure"):
        expected, actual = _uncompacted(expected), _uncompacted(actual)
    trace = _jvm_frames(prose, calls) or frames(_narrow(searched))
    at = trace[-1] if trace else location(_narrow(searched))
    if not file and at:
        file, line = at.file, at.line
    return Failure(
        type=type or error_type(message or body) or error_type(body),
        message=clip((message or body).strip()),
        expected=expected,
        actual=actual,
        operator=operator,
        diff=changes,
        file=file,
        line=line,
        frames=trace,
    )


def _ends(text: str) -> str:
    return text if len(text) <= _SCAN else text[: _SCAN // 2] + "\n" + text[-_SCAN // 2 :]


def _narrow(text: str) -> str:
    if len(text) <= _WIDE:
        return text
    rows = text.split("\n")
    return text if max(map(len, rows)) <= _WIDE else "\n".join([row[:_WIDE] for row in rows])


def _apart(text: str) -> tuple[str, dict[str, Frame]]:
    """What a person wrote, and the project's rows in the stack of a Java virtual machine, which is nothing but calls."""
    begin = text.find("\n\tat ") + 1
    if text.startswith("\tat "):
        begin = 0
    elif not begin:
        return text, {}
    prose = text[:begin].removesuffix("\n")
    calls, is_stack = _calls(text, begin)
    # Else a cause stands between two stacks.
    if not is_stack:
        prose = "\n".join([prose, *(row for row in text[begin:].split("\n") if not row.startswith("\t"))])
    return prose, calls


_TYPE = re.compile(
    r"^(?!(?:Error|Exception|Failure|Failed|Exit)$)(?:E +|Uncaught |\*\* \()?((?:[A-Za-z_]\w*(?:\.|::|\\))*(?:[A-Z]\w*)?(?:Error|Exception|Failure|Failed|Exit|Interrupt))\b(?=\s?:|\)| \[|$)"
)


_PYTEST_TYPE = re.compile(r'^(?:\S+\.py:\d+: |failed on \w+ with ")([A-Z]\w+)\b', re.M)


def error_type(text: str) -> str:
    """The class of what was thrown: at the front of the text, in pytest's last line or in its words about a fixture."""
    found = _TYPE.match(first_line(text))
    if not found and (".py:" in text or "failed on " in text):
        found = _PYTEST_TYPE.search(text)
    return found.group(1) if found else ""


_SANITIZER = re.compile(
    r"(?:ERROR|WARNING): ((?:Address|Leak|Memory|Thread|HWAddress)Sanitizer): (.+?)(?: on address .*| \(pid=\d+\))?$",
    re.M,
)
_RUNTIME = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d{1,9}):\d+: runtime error: (?P<message>.+)$", re.M)


def sanitizer(text: str) -> Failure | None:
    """What a sanitizer says in a program's output: ASan, LSan, MSan, TSan, UBSan."""
    text = _narrow(_ends(plain(text)))
    if found := _SANITIZER.search(text):
        trace = frames(text[found.start() :])
        at = trace[-1] if trace else Frame(file="")
        return Failure(type=found.group(1), message=found.group(2), file=at.file, line=at.line, frames=trace)
    if found := _RUNTIME.search(text):
        file, line = found.group("file"), _line(found.group("line"))
        return Failure(type="UndefinedBehaviorSanitizer", message=found.group("message"), file=file, line=line)
    return None


# --- expected and actual ---------------------------------------------------------------------------------------------

_V = r"[ \t]*(?P<{}>\S[^\n]*?)[ \t]*"


def _value(name: str) -> str:
    return _V.format(name)


_E, _A = _value("e"), _value("a")
_EQUAL = r"(?P<op>===?|!==?|<=|>=|<|>|=~|is not|is|not in|in)"

# Where it comes from, what a text must contain for the search to be worth it, the pattern (e expected, a actual, op operator).
# The more particular comes first.
# fmt: off
_COMPARISONS: list[tuple[str, str, str]] = [
    ("junit", "but was", r"expected: ?(?:[\w.$]+(?:@\w+)?)?<(?P<e>.*?)> but was: ?(?:[\w.$]+(?:@\w+)?)?<(?P<a>.*?)>(?=\s*$|\n| within| at | expected)"),
    ("junit within", "but was", r"expected: ?<(?P<e>[^\n]*?)> but was: ?<(?P<a>[^\n]*?)>"),
    ("kotlin", "ctual", r"[Ee]xpected:? ?<(?P<e>[^\n]*?)>[,.] ?[Aa]ctual:? ?<(?P<a>[^\n]*?)>"),
    ("testng", "but found", r"expected \[(?P<e>[^\n]*?)\] but found \[(?P<a>[^\n]*?)\]"),
    ("nunit", "But was:", rf"Expected:{_E}\n\s*But was:{_A}(?:\n|$)"),
    ("hamcrest", "but:", r"Expected: (?:is )?(?P<e>[^\n]+)\n\s*but: (?:was )?(?P<a>[^\n]+)"),
    ("assertj", "Expecting actual", rf"Expecting actual:\n{_A}\n\s*to be equal to:\s*\n{_E}(?:\n|$)"),
    ("assertj old", "Expecting", r"Expecting:?\n\s*<(?P<a>[^\n]*)>\n\s*to be equal to:\s*\n\s*<(?P<e>[^\n]*)>"),
    ("assertj 3", "but was", rf"expected:{_E}\n\s*but was ?:{_A}(?:\n|$)"),
    ("gtest equal", "Expected equality", r"Expected equality of these values:\n {2}(?P<v1>[^\n]+)\n(?: {4}Which is: (?P<w1>[^\n]+)\n)? {2}(?P<v2>[^\n]+)(?:\n {4}Which is: (?P<w2>[^\n]+))?"),
    ("gtest truth", "Value of: ", r"Value of: [^\n]+\n +Actual: (?P<a>[^\n]+)\nExpected: (?P<e>[^\n]+)"),
    ("gtest compare", ", actual: ", r"Expected: \((?P<l>[^\n]+)\) (?P<op>[=!<>]+) \([^\n]+\), actual: (?P<a>[^\n]+?) vs (?P<e>[^\n]+)"),
    ("boost", " failed [", r"check (?P<l>[^\n]+?) (?P<op>[=!<>]=|<|>) [^\n]+? failed \[(?P<a>[^\n]+?) [=!<>]+ (?P<e>[^\n]+?)\](?:\n|$)"),
    ("qt", "Compared values", r"Actual +\([^\n]*?\) *: (?P<a>[^\n]+)\n\s*Expected +\([^\n]*?\) *: (?P<e>[^\n]+)"),
    ("cppunit", "- Actual", r"- Expected ?: (?P<e>[^\n]+?)\s*- Actual {0,2}: (?P<a>[^\n]+)"),
    ("gomega", "\nto ", r"Expected\n\s+<[^\n>]+>: (?P<a>[^\n]+)\nto (?P<op>equal|be equivalent to|be identical to|be ==|be numerically [^\n]+?|contain element matching|contain substring)\n\s+<[^\n>]+>: (?P<e>[^\n]+)"),
    ("mocha diff", "+ expected - actual", r"\+ expected - actual\s*?\n\s*\n *-(?P<a>[^\n]+)\n *\+(?P<e>[^\n]+)(?:\n\s*\n|\s*$)"),
    ("catch2", "with expansion:", rf"with expansion:\n\s*(?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+)"),
    ("doctest c++", "values: ", rf"values: \w+\( (?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+?) \)(?:\n|$)"),
    ("rust", "right", r"assertion `?(?:failed: `)?\(?left (?P<op>[=!]=) right\)?`(?: failed)?[^\n]*\n\s*left: `?(?P<a>[^\n]*?)`?,?\n\s*right: `?(?P<e>[^\n]*?)`?(?:'?, [^\n]*:\d+:\d+)?(?:\n|$)"),
    ("exunit", "right:", rf"(?:code: +\w+ [^\n]*? (?P<op>[=!<>~]=+|[<>]) [^\n]*\n)?\s*left: {_A}\n\s*right: {_E}(?:\n|$)"),
    ("xunit diff", "Actual:", rf"Expected:{_E}\n\s*Actual:{_A}(?:\n|$)"),
    ("mstest", "Actual:<", r"Expected:<(?P<e>[^\n]*?)>\. Actual:<(?P<a>[^\n]*?)>"),
    ("jest", "Expected", r"Expected(?: value| substring| pattern| length| path| property| constructor| message)?: (?:not )?(?P<e>[^\n]+)\n(?:[^\n]*\n)??\s*(?:Received(?: value| string| length| path| object| property| constructor| message)?|Actual): +(?P<a>[^\n]+)"),
    ("busted", "Passed in:", r"Passed in:\n\s*(?:\(\w+\) )?(?P<a>[^\n]+)\n\s*Expected:\n\s*(?:\(\w+\) )?(?P<e>[^\n]+)"),
    ("busted old", "Passed in:", r"Expected:\n\s*\(\w+\) (?P<e>[^\n]+)\n\s*Passed in:\n\s*\(\w+\) (?P<a>[^\n]+)"),
    ("testify", "actual", rf"expected ?:{_E}\n\s*actual ?\s?:{_A}(?:\n|$)"),
    ("rspec", "got:", rf"expected:{_E}\n\s*got:{_A}(?:\n|$)"),
    ("perl", "got:", rf"got:{_A}\n#?\s*expected:{_E}(?:\n|$)"),
    ("want after got", "want", rf"got ?:{_A}\n\s*want ?:{_E}(?:\n|$)"),
    ("got after want", "want", rf"want ?:{_E}\n\s*got ?:{_A}(?:\n|$)"),
    ("bats-assert", "actual   :", rf"expected :{_E}\n(?:#? *)actual   :{_A}(?:\n|$)"),
    ("bats", "' failed", r"`(?P<shell>\[\[?) \"?(?P<a>[^\n]+?)\"? (?P<op>-eq|-ne|-lt|-le|-gt|-ge|==?|!=|=~) \"?(?P<e>[^\n$\"]+)\"? \]\]?' failed"),
    ("phpunit size", "Failed asserting that", r"actual size (?P<a>\d+) matches expected size (?P<e>\d+)"),
    ("phpunit unlike", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) (?P<op>is not identical to|is not equal to|is (?:equal to or )?(?:greater|less) than|does not contain|contains|matches PCRE pattern) (?P<e>[^\n]+?)\.?(?:\n|$)"),
    ("phpunit kind", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) is (?P<e>(?:not )?(?:true|false|null|empty)|(?:an instance|of type)[^\n]+?)\.?(?:\n|$)"),
    ("phpunit identical", "Failed asserting that", r"Failed asserting that (?P<a>[^\n]+?) (?:matches expected|is identical to|is equal to) (?P<e>[^\n]+?)\.?(?:\n|$)"),
    ("phpunit diff", "+++ Actual", r"--- Expected\n\+\+\+ Actual\n@@ @@\n-(?P<e>[^\n]*)\n\+(?P<a>[^\n]*)"),
    ("swift", "XCTAssert", r'XCTAssert\w+ failed: \("(?P<a>[^\n]*?)"\) is not (?P<op>equal) to \("(?P<e>[^\n]*?)"\)'),
    ("swift testing", "Expectation failed", rf"Expectation failed: \([^\n]*? → (?P<a>[^\n)]+)\) {_EQUAL} (?P<e>[^\n]+)"),
    ("node", "Expected values to be", r"Expected values to be (?:strictly |loosely )?(?:deep-)?equal:\s*\n\s*\n?(?P<a>[^\n+-][^\n]*?) (?P<op>!==?) (?P<e>[^\n]+?)\s*(?:\n|$)"),
    ("node diff", "+ actual - expected", r"\+ actual - expected[^\n]*\n\s*\n?\+ (?P<a>[^\n]+)\n- (?P<e>[^\n]+)"),
    ("jest assert", "Received:", r"Expected value to [^\n]*:\s*\n\s+(?P<e>[^\n]+)\n(?:[^\n]*\n)??Received:\s*\n\s+(?P<a>[^\n]+)"),
    ("perl deep", "$got", r"\$got\S* = (?P<a>[^\n]+)\n#?\s*\$expected\S* = (?P<e>[^\n]+)"),
    ("vitest diff", "+ Received", r"- Expected[^\n]*\n\+ Received[^\n]*\n\s*\n- (?P<e>[^\n]+)\n\+ (?P<a>[^\n]+)\n(?:\n|$)"),
    ("chai", " to ", r"[Ee]xpected (?!values? to )(?P<a>[^\n]+?) to (?P<op>(?:strictly |deeply |loosely )*equal|be|deep equal|eql|include|match)(?: to)? (?P<e>[^\n]+?)\.?(?: // [^\n]*)?(?:\n|$)"),
    ("scalatest", "did not equal", r"(?:^|\n)(?:[\w.]+Exception: )?(?P<a>[^\n]+?) (?P<op>did not equal) (?P<e>[^\n]+?)(?: \([\w.]+:\d+\))?(?:\n|$)"),
    ("munit", "=> Obtained", r"values are not the same\n=> Obtained\n(?P<a>[^\n]+)\n=> Diff[^\n]*\n-[^\n]*\n\+(?P<e>[^\n]+)"),
    ("unittest", "AssertionError: ", r"(?:^|\n) *(?:E +)?(?:AssertionError: )(?P<a>[^\n]+?) (?P<op>!=|not (?:less|greater) than(?: or equal to)?|is not|not found in) (?P<e>[^\n]+?)(?: : [^\n]*)?(?:\n|$)"),
    ("pytest", "assert ", rf"(?:^|\n)(?:E +(?:AssertionError: )?|AssertionError: )?assert (?!not )(?P<a>[^\n]+?) {_EQUAL} (?P<e>[^\n]+?)(?:\n|$)"),
    ("unity", " Was ", r"Expected (?P<e>[^\n]+?) Was (?P<a>[^\n]+?)\.?(?:\n|$)"),
    ("zig", ", found ", r"expected (?P<e>[^\n]+?), found (?P<a>[^\n]+?)(?:\n|$)"),
    ("want", "ant", r"[Ww]ant(?:ed)?[: =]+(?P<e>[^\n]+?)[,;]? (?:but )?got[: =]+(?P<a>[^\n]+?)(?:\n|$)"),
    ("got", "t", r"(?:[Gg]ot|Actual|Received|=)[: =]* ?(?P<a>[^\n]+?)[,;:]? (?:but )?(?:want(?:ed)?|expect(?:ed|ing)?)[: =]+(?P<e>[^\n]+?)(?:\n|$)"),
    ("expected got", "xpect", r"[Ee]xpect(?:ed|ing)(?! values? to)[: =]+(?P<e>[^\n]+?)[,;.]? (?:but )?(?:actual(?:ly)?|got|found|received|was|is)[: =]+(?P<a>[^\n]+?)\.?(?:\n|$)"),
    ("nim", "Check failed", r"Check failed: (?P<l>[^\n]+?) (?P<op>==) (?P<e>[^\n]+)\n\s*(?P=l) was (?P<a>[^\n]+)"),
]
# fmt: on
# All others match only what speaks of something expected.
_EXPECTS_NOTHING = {
    "boost",
    "catch2",
    "doctest c++",
    "rust",
    "exunit",
    "want after got",
    "got after want",
    "bats",
    "phpunit unlike",
    "phpunit kind",
    "phpunit identical",
    "swift",
    "scalatest",
    "munit",
    "unittest",
    "pytest",
    "want",
    "got",
    "nim",
}  # fmt: skip
_COMPILED = [(needle, re.compile(pattern)) for _, needle, pattern in _COMPARISONS]
_UNEXPECTED = [rule for rule, (name, _, _) in zip(_COMPILED, _COMPARISONS, strict=True) if name in _EXPECTS_NOTHING]


def comparison(text: str) -> tuple[str | None, str | None, str]:
    """Expected, actual and operator, or nothing. Left is the actual value unless the framework says otherwise."""
    for needle, pattern in _COMPILED if "xpect" in text else _UNEXPECTED:
        if needle in text and (found := pattern.search(text)):
            return _compared(found, pattern.groupindex)
    return None, None, ""


def _compared(found: re.Match[str], groups: Mapping[str, int]) -> tuple[str, str | None, str]:
    expected, actual = (found["e"], found["a"]) if "e" in groups else _gtest(found)
    expected, actual = _unwrapped(expected.strip(), actual.strip())
    operator = (found["op"] or "") if "op" in groups else ""
    # A shell expands before it compares: what stood on the left is not what was found there.
    if "$" in actual and "shell" in groups:
        return clip(expected), None, _OPERATORS.get(operator, operator)
    return clip(expected), clip(actual), _OPERATORS.get(operator, operator)


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


def _unwrapped(expected: str, actual: str) -> tuple[str, str]:
    """Hamcrest and Dart put what is not a string between angle brackets."""
    if expected[:1] == actual[:1] == "<" and expected[-1:] == actual[-1:] == ">":
        return expected[1:-1], actual[1:-1]
    return expected, actual


def _gtest(found: re.Match[str]) -> tuple[str, str]:
    """GoogleTest names no side: the one that had to be computed (`Which is`) is the actual value."""
    first, second = found["w1"] or found["v1"], found["w2"] or found["v2"]
    return (first, second) if found["w2"] and not found["w1"] else (second, first)


_DIFF = re.compile(
    r"(?:^--- Expected\n\+\+\+ Actual\n|^[+-] (?:Expected|actual|Received)[^\n]*\n(?:[+-] (?:Received|Expected)[^\n]*\n)?|^Diff:\n|^@@ [^\n]*@@\n)"
    r"(?P<diff>(?:[ ]*[-+@ |][^\n]*\n|\n)+)",
    re.M,
)


def diff(text: str) -> str:
    if not any(sign in text for sign in _DIFF_SIGNS):
        return ""
    found = _DIFF.search(text + "\n")
    rows = found.group("diff").strip("\n").splitlines() if found else []
    end = next((index for index, row in enumerate(rows) if _AFTER_DIFF.match(row)), len(rows))
    return clip("\n".join(rows[:end]).strip("\n"), 4000)


_DIFF_SIGNS = ("Actual\n", "Received", "+ actual", "- Expected", "Diff:", "@@ ")
_AFTER_DIFF = re.compile(r"\s*(?:❯ |at |# \.?/|[\w./-]+:\d+)")


def _sides(changes: str) -> tuple[str | None, str | None]:
    """Both values from a difference between them: minus is expected, plus is actual, in every runner that prints one."""
    rows = [row for row in changes.splitlines() if not row.startswith("@@")]
    if not any(row.startswith("+") for row in rows) or not any(row.startswith("-") for row in rows):
        return None, None
    expected = [row[1:] for row in rows if not row.startswith("+")]
    actual = [row[1:] for row in rows if not row.startswith("-")]
    return dedent("\n".join(expected)).strip("\n"), dedent("\n".join(actual)).strip("\n")


def _uncompacted(value: str) -> str:
    """JUnit 4 brackets what differs; what it left out in dots cannot be brought back."""
    return value.replace("[", "", 1).replace("]", "", 1) if value.count("[") == value.count("]") == 1 else value


# --- frames ----------------------------------------------------------------------------------------------------------

_FOREIGN = re.compile(
    r"node_modules/|^node:|/node:internal|site-packages/|dist-packages/|/lib/python\d|/rustc/|\.cargo/registry|/rustlib/|/gems/|/rubygems/|/ruby/\d|/usr/(?:lib|include)/|/usr/share/(?!nginx|apache|www|webapps)"
    r"|(?:^|/)vendor/|/go/pkg/mod/|/go/src/(?![^/]*\.)|/usr/local/go|/libgo|<frozen|<string>|<anonymous>|^internal/|/jest-|/mocha/lib/|^native$|^dart:|package:test|package:stack_trace"
    r"|\(ex_unit|\(elixir|\(stdlib|/zig/lib/|/lib/std/|catch\.hpp$|catch_amalgamated|/gtest/|doctest\.h$|libsanitizer/|/csu/|/sysdeps/|compiler-rt/|^ext:|/_pytest/|/unittest/(?:case|mock|loader)\.py"
)
_FOREIGN_JVM = re.compile(
    r"^(?:java|javax|jdk|sun|com\.sun|kotlin|kotlinx|scala|groovy|groovyjarjar\w*|junit|org\.(?:junit|opentest4j|testng|assertj|hamcrest|mockito|gradle|apache\.maven"
    r"|codehaus|scalatest|spockframework|scalactic|specs2|powermock)|munit|sbt|worker\.org\.gradle|app//org\.junit|java\.base)[./]"
)


# The failures of one run share most of their frames.
_remembered = lru_cache(maxsize=2048)

_PYTHON = re.compile(r'\s*File "(.+?)", line (\d+)(?:, in (.+)|\s*$)')
_FATAL_PYTHON = re.compile(r'\s*File "(.+?)", line (\d+) in (.+)')  # of a process that died, innermost first
_PYTEST = re.compile(r"([\w./\\+@ -]+\.py):(\d+): (?:in (\S+)|[A-Z]\w*\b|$)")
_JAVASCRIPT = re.compile(
    r"\s*(?:at|❯) (?:async )?(?:(.+?) \()?(?:file://|webpack(?:-internal)?://[\w-]*/)?((?:/|\.{0,2}/|[A-Za-z]:[\\/]|node:)?[^\s():][^():]*?):(\d+):\d+\)?$"
)
_JVM = re.compile(r"\s*at (?:[\w.@-]++/++)*+([\w.$<>/]+)\.([\w$<>]+)\(([\w$-]+\.(?:java|kt|scala|groovy)):(\d+)\)")
_DOTNET = re.compile(r"\s*at (.+?) in (.+?):line (\d+)")
_RUBY = re.compile(r"\s*(?:# |from )?((?:[A-Za-z]:)?[\w./@ +-]+\.rb):(\d+)(?::in [`'](.+?)')?")
_PHP = re.compile(r"\s*(?:#\d+ |at )?((?:[A-Za-z]:)?[\w./\\@ +-]+\.(?:php|phpt))[:(](\d+)\)?(?:: (.+))?\s*$")
_ELIXIR = re.compile(r"\s*(?:\(([\w.]+)(?: [\w.-]+)?\) )?([\w./-]+\.(?:exs?|erl|gleam)):(\d+)(?::\d+)?(?:: (.+))?")
_NATIVE = re.compile(r"\s*#\d+ 0x[0-9a-f]+ in (.+?) ([/.\w][^\s:]*\.\w+):(\d+)(?::\d+)?")
_GO = re.compile(r"\t((?:/|[A-Za-z]:)[^\s:]*\.go):(\d+)(?: \+0x[0-9a-f]+)?\s*$")
_RUST = re.compile(r"\s+at ((?:\./|/)?[^\s:]+\.rs):(\d+)(?::\d+)?\s*$")
_DART = re.compile(r"\s*(?:#\d+ +)?(?:(?:package|file):)?([\w./\\-]+\.dart) (\d+)(?::\d+)? +(\S.*)")
_ZIG = re.compile(r"(\S+\.zig):(\d+):\d+: 0x[0-9a-f]+ in (\S+)")


@_remembered
def _python(line: str) -> Frame | None:
    found = _PYTHON.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _fatal_python(line: str) -> Frame | None:
    found = _FATAL_PYTHON.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _pytest(line: str) -> Frame | None:
    found = _PYTEST.match(line + " ")
    return _frame(found, 1, 2, 3)


@_remembered
def _javascript(line: str) -> Frame | None:
    found = _JAVASCRIPT.match(line)
    return _frame(found, 2, 3, 1)


class _JvmRows(dict[str, Frame | None]):
    """Rows of stacks that were read before; a document of failures asks for the same ones a million times."""

    def __missing__(self, row: str) -> Frame | None:
        if len(self) >= _MOST_ROWS:
            self.clear()
        self[row] = frame = _jvm(row)
        return frame


_JvmEnd = tuple[dict[str, Frame], int]


class _JvmEnds(dict[str, _JvmEnd]):
    """How stacks end, below the project's calls: the same in nearly all failures of a run. And tabs less line ends."""

    last: tuple[str, _JvmEnd] = ("", ({}, 0))

    def read(self, text: str, at: int) -> _JvmEnd:
        # To compare is much faster than to hash.
        last, known = self.last
        if len(last) != len(text) - at or not text.endswith(last):
            last = text[at:]
            known = self[last]
            self.last = last, known
        return known

    def __missing__(self, end: str) -> _JvmEnd:
        if len(self) >= _MOST_ENDS:
            self.clear()
        rows = {row: frame for row in end.split("\n") if (frame := _JVM_ROWS[row])}
        self[end] = known = rows, end.count("\t") - end.count("\n")
        return known


_MOST_ROWS = 4096
_MOST_ENDS = 64  # each may be as long as all that is searched


def _jvm(line: str) -> Frame | None:
    found = _JVM.match(line)
    folder = _jvm_folder(found[1]) if found else None
    if not found or folder is None:
        return None
    return Frame(file=f"{folder}{found[3]}", line=_line(found[4]), function=f"{found[1]}.{found[2]}")


@_remembered
def _jvm_folder(owner: str) -> str | None:
    """Where the sources of a class lie; nowhere if it is not the project's."""
    return None if _FOREIGN_JVM.match(owner + ".") else "".join(owner.replace(".", "/").rpartition("/")[:2])


@_remembered
def _dotnet(line: str) -> Frame | None:
    found = _DOTNET.match(line)
    return _frame(found, 2, 3, 1)


@_remembered
def _ruby(line: str) -> Frame | None:
    found = _RUBY.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _php(line: str) -> Frame | None:
    found = _PHP.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _elixir(line: str) -> Frame | None:
    found = _ELIXIR.match(line)
    return None if found and found.group(1) in {"ex_unit", "elixir", "stdlib", "mix"} else _frame(found, 2, 3, 4)


@_remembered
def _native(line: str) -> Frame | None:
    found = _NATIVE.match(line)
    return _frame(found, 2, 3, 1)


@_remembered
def _go(line: str) -> Frame | None:
    found = _GO.match(line)
    return _frame(found, 1, 2, 0)


@_remembered
def _rust(line: str) -> Frame | None:
    found = _RUST.match(line)
    return _frame(found, 1, 2, 0)


@_remembered
def _dart(line: str) -> Frame | None:
    found = _DART.match(line)
    return _frame(found, 1, 2, 3)


@_remembered
def _zig(line: str) -> Frame | None:
    found = _ZIG.match(line)
    return _frame(found, 1, 2, 3)


def _frame(found: re.Match[str] | None, file: int, line: int, function: int) -> Frame | None:
    if not found or _is_foreign(found.group(file)):
        return None
    name = (found.group(function) or "").strip() if function else ""
    return Frame(file=_path(found.group(file)), line=_line(found.group(line)), function=name)


@_remembered
def _is_foreign(file: str) -> bool:
    return _FOREIGN.search(file.replace("\\", "/") if "\\" in file else file) is not None


def _path(path: str) -> str:
    return path.strip().removeprefix("file://").removeprefix("./")


def _line(digits: str) -> int:
    return int(digits) if len(digits) < 10 else 0


_JVM_ROWS = _JvmRows()
_JVM_ENDS = _JvmEnds()

# Each reader with what a line must contain for it to look, and whether the innermost frame is printed first.
_READERS: list[tuple[str, Callable[[str], Frame | None], bool]] = [
    ('File "', _python, False),
    ('File "', _fatal_python, True),
    (".py:", _pytest, False),
    (".zig:", _zig, True),
    ("at ", _JVM_ROWS.__getitem__, True),
    (":line ", _dotnet, True),
    (".rs:", _rust, True),
    ("at ", _javascript, True),
    ("❯ ", _javascript, True),
    (" 0x", _native, True),
    (".go:", _go, True),
    (".rb:", _ruby, True),
    (".php", _php, True),
    (".ex", _elixir, True),
    (".erl:", _elixir, True),
    (".gleam:", _elixir, True),
    (".dart", _dart, True),
]


def frames(text: str) -> list[Frame]:
    """The stack inside the project, innermost last; the first kind of stack that the text shows."""
    rows = _first_stack(text.splitlines()) if " 0x" in text else text.splitlines()
    for needle, reader, inner_first in _READERS:
        if needle in text:
            found = _distinct(
                (row for row in rows if needle in row), reader, most=_MOST_FRAMES if inner_first else _SCAN
            )
            if found:
                return found[::-1] if inner_first else found[-_MOST_FRAMES:]
    return []


def _calls(text: str, begin: int) -> tuple[dict[str, Frame], bool]:
    """The project's rows of the stack that begins here, and whether each row has one tab and nothing more to see."""
    found: dict[str, Frame] = {}
    at = begin
    while len(found) < _MOST_FRAMES:
        end = text.find("\n", at)
        row = text[at:end] if end >= 0 else text[at:]
        if frame := _JVM_ROWS[row]:
            found[row] = frame
        elif found and end >= 0:
            rows, spare = _JVM_ENDS.read(text, end + 1)
            spare += text.count("\t", begin, end) - text.count("\n", begin, end) - 1
            return found | rows, spare == 1
        if end < 0:
            break
        at = end + 1
    return found, text.count("\t", begin) - text.count("\n", begin) == 1


def _jvm_frames(prose: str, calls: dict[str, Frame]) -> list[Frame]:
    """The same for a stack that was told apart, unless the prose shows one that goes before it."""
    if not calls or 'File "' in prose or ".py:" in prose or ".zig:" in prose:
        return []
    return list(calls.values())[:_MOST_FRAMES][::-1]


def _first_stack(rows: list[str]) -> list[str]:
    """A sanitizer prints several stacks: where it happened, where the memory came from and went."""
    starts = [index for index, row in enumerate(rows) if row.lstrip().startswith("#0 0x")]
    return rows[: starts[1]] if len(starts) > 1 else rows


def _distinct(rows: Iterator[str], reader: Callable[[str], Frame | None], *, most: int) -> list[Frame]:
    """A cause repeats the frames of its effect; the first stack is the one that failed."""
    found: dict[str, Frame] = {}
    for row in rows:
        if row not in found and (frame := reader(row)):
            found[row] = frame
            if len(found) >= most:
                break
    return list(found.values())


# --- one place -------------------------------------------------------------------------------------------------------

# What a text must contain for the search to be worth it, and the pattern.
_PLACES = [
    ("panicked at ", re.compile(r"panicked at (?:'.*', )?(?P<file>[^\s:']+\.rs):(?P<line>\d+)", re.S)),
    (
        "== [File] - ",
        re.compile(r"== \[File\] - (?P<file>(?!unknown location)[^\n]+?)\s+== \[Line\] -\s*(?P<line>\d+)"),
    ),
    (".php", re.compile(r" in (?P<file>\S+\.phpt?)\((?P<line>\d+)\)")),
    (" at line ", re.compile(r" in (?P<file>\S+) at line (?P<line>\d+)$", re.M)),
    (" (line ", re.compile(r"(?P<file>[^\s:()]+\.\w+) \(line (?P<line>\d+)\)")),
    ("(in test file ", re.compile(r"\(in test file (?P<file>[^,\n]+), line (?P<line>\d+)\)")),
    ("file ", re.compile(r"in (?:test )?file (?P<file>[^,\n]+), line (?P<line>\d+)")),
    ("Error Trace:", re.compile(r"Error Trace:\s*(?P<file>[^\s:]+):(?P<line>\d+)")),
    (".go:", re.compile(r"^\s*(?P<file>[\w./-]+\.go):(?P<line>\d+): ", re.M)),
    (" line ", re.compile(r"^#?\s*at (?P<file>\S+) line (?P<line>\d+)\.?$", re.M)),
    ("[", re.compile(r"\[(?P<file>[^\s\]:]+):(?P<line>\d+)\]")),
    (".nim(", re.compile(r"^\s*(?P<file>\S+\.nim)\((?P<line>\d+), \d+\)", re.M)),
    (
        ":",
        re.compile(
            r"^\s*(?P<file>(?:[A-Za-z]:)?[^\s:()]+\.\w+):(?P<line>\d+)(?::\d+)?:? ?(?:Failure|FAILED|error|fatal|assert)",
            re.M | re.I,
        ),
    ),
    (
        "): ",
        re.compile(
            r"^\s*(?P<file>(?:[A-Za-z]:)?[^\s:()'\"]+\.\w+)\((?P<line>\d+)\): (?:error|fatal|ERROR|FAILED)", re.M
        ),
    ),
    (
        ")",
        re.compile(
            r"^\s*(?P<file>(?:[A-Za-z]:)?[^\s:()'\"]+\.(?:c|cc|cpp|cxx|h|hpp|mm?|cs|vb))\((?P<line>\d+)\) ?: ", re.M
        ),
    ),
    (
        ":",
        re.compile(
            r"(?:^|[\s(\[])(?P<file>(?:file://)?(?:[A-Za-z]:)?[\w./\\@+-]*[\w-]\.[A-Za-z]\w{0,4}):(?P<line>\d+)(?![\d.])",
            re.M,
        ),
    ),
]


def location(text: str) -> Frame | None:
    """Where it failed, when there is no stack: the first place in the project that the text names."""
    for needle, pattern in _PLACES:
        for found in pattern.finditer(text) if needle in text else ():
            if not _is_foreign(found.group("file")):
                return Frame(file=_path(found.group("file")), line=_line(found.group("line")))
    return None
