"""Rewrites tests in JavaScript and TypeScript so that they fail, and says which results then prove a fake.

There is no grammar, only tokens and brackets. So a body is rewritten only where it certainly is that of a plain test,
called by a word that certainly is a runner's own; a file in which such a word is used in any other way is left alone.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ratchet.core.failing_tests.result import Name, Rewriting, Unclear, failing_tests

_TESTS = frozenset(("it", "test", "specify", "fit"))
_SUITES = frozenset(("describe", "context", "suite", "fdescribe", "experiment"))
_PLAYWRIGHT = "@playwright/test"
_MODULES = frozenset(("node:test", "vitest", "@jest/globals", "mocha", "ava", "uvu", _PLAYWRIGHT))
_LAB = re.compile(
    r"""(?:const|let|var)\s*\{[\w\s,]+\}\s*=\s*\(?\s*
    (?:(?:exports\.lab\s*=\s*)?(?:Lab|require\(['"](?:@hapi/)?lab['"]\))\.script\(\)|(?P<lab>lab)\b)(?!\s*[.(\[])""",
    re.VERBOSE,
)
_LAB_MODULE = re.compile(r"['\"](?:@hapi/)?lab['\"]")
_LAB_SCRIPT = re.compile(r"\blab\s*=\s*Lab\.script\(\)")
# In Playwright these describe a group or the rest of a body. A test that they expect to fail is never passed.
_OF_GROUP = frozenset(("skip", "fixme", "fail", "slow", "use", "setTimeout"))
_HOOKS = frozenset(("before", "after", "beforeEach", "afterEach", "beforeAll", "afterAll"))
_PLAIN = frozenset(("only", "concurrent", "sequential", "serial"))
_WITH_ARGUMENTS = frozenset(("each", "for", "skipIf", "runIf"))
_NEVER_PASS = frozenset(("skip", "todo", "failing", "fails"))
_PLAIN_OPTIONS = frozenset(
    ("timeout", "concurrency", "concurrent", "sequential", "retry", "repeats", "skip", "only", "true", "false")
)
# Left alone: files that a build writes again before the run, and tests of types, whose bodies are never run.
_GENERATED = re.compile(
    r"sourceMappingURL=|defineProperty\(exports,\s*['\"]__esModule|\b__(?:defProp|toESM|toCommonJS|awaiter)\b"
    r"|@generated\b|DO NOT EDIT|\b(?:expectTypeOf|assertType)\b"
)
_GENERATED_PATH = re.compile(r"(?:^|/)(?:dist|build|out|coverage|node_modules)/|-d\.[cm]?tsx?$")
_TIME = re.compile(r"(?i:timeout)|^[A-Z][A-Z\d_]*$")
_GAP = r"\\(?P<same>['\"`\\])|\\(?s:.)|\r"  # an escape, whose value is left open
_GAP_OF_TABLE = rf"{_GAP}|%[\w#$%]|\$[\w#.]+"
_LINE_MAX = 2_000
_LITERAL_MIN = 4  # letters of a title with gaps, below which it says too little

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<word>[^\W\d][\w$]*|\$[\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<mark>=>|.)""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(r"/(?![*/])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+/\w*")
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*", re.DOTALL)
_BEFORE_REGEX = frozenset(
    ("return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield")
)
_CLOSES = {"(": ")", "[": "]", "{": "}"}


# Assertions of node, chai and vitest, of jest and vitest, and of chai, with arguments that they must refuse.
_ASSERTIONS = {
    "assert": {
        "equal": ".equal(r[0], r[1])", "strictEqual": ".strictEqual(r[0], r[1])", "ok": ".ok(!r[0])",
        "deepEqual": ".deepEqual([r[0]], [r[1]])", "deepStrictEqual": ".deepStrictEqual([r[0]], [r[1]])",
        "notEqual": ".notEqual(r[0], r[0])", "notStrictEqual": ".notStrictEqual(r[0], r[0])",
        "throws": ".throws(() => {})",
    },
    "expect": {
        "toBe": "(r[0]).toBe(r[1])", "toEqual": "(r[0]).toEqual(r[1])", "toStrictEqual": "(r[0]).toStrictEqual(r[1])",
        "toBeTruthy": "(!r[0]).toBeTruthy()", "toBeFalsy": "(r[0]).toBeFalsy()",
        "toContain": "([r[0]]).toContain(r[1])", "toThrow": "(() => {}).toThrow()",
        r"to\.(?:\w+\.)*equal": "(r[0]).to.equal(r[1])", r"to\.(?:\w+\.)*eql": "(r[0]).to.eql(r[1])",
    },
}  # fmt: skip
_EQUALITIES = ("equal", "strictEqual", "deepEqual", "deepStrictEqual")
_KNOWN_MODULE = r"""['"](?:(?:node:)?assert(?:/strict)?|chai|vitest|@jest/globals|expect|@playwright/test)['"]"""
_IMPORTED = (
    r"(?:import|const|let|var)\b[^;=]*?\b{word}\b[^;=]*?(?:from|=\s*require\()\s*(?P<module>['\"][^'\"\n]*['\"])"
)


def rewrite(path: str, text: str, *, run: bool = False) -> Rewriting:
    """Put a failure first into the body of each test, or with `run` behind it."""
    if _GENERATED_PATH.search(path) or _GENERATED.search(text):
        raise Unclear
    calls = _Calls(text, run=run)
    calls.read(0, len(calls.tokens), [])
    return Rewriting(calls.additions, failing_tests(calls.sure, calls.doubtful))


def _known_words(text: str) -> list[str]:
    """Return which of `assert` and `expect` the file uses as its runner or a known library gives them."""
    known = []
    for word in _ASSERTIONS:
        modules = [each["module"] for each in re.finditer(_IMPORTED.format(word=word), text)]
        is_global = word == "expect" and not modules and not re.search(r"(?:function|const|let|var)\s+expect\b", text)
        if is_global or (modules and all(re.fullmatch(_KNOWN_MODULE, module) for module in modules)):
            known.append(word)
    return known


def _refused(text: str, words: list[str]) -> str:
    """Return code that counts which of the assertions that the file uses accept what is false."""
    used = [
        f"{word}{call}"
        for word in words
        for name, call in _ASSERTIONS[word].items()
        if re.search(rf"\b{word}\b[^;]*?\.{name}\(", text)
    ]
    return " ".join(f"try {{ {call}; $n += 1; }} catch (e) {{}}" for call in used)


class _Token(NamedTuple):
    kind: str  # word, number, string, template, regex or mark
    text: str
    start: int
    end: int
    gaps: tuple[tuple[int, int], ...] = ()  # of a template


def _tokens(text: str, at: int = 0, *, nested: bool = False) -> tuple[list[_Token], int]:
    """Return the tokens from an offset to the end, or to the brace that closes a template's gap, and where that is."""
    tokens: list[_Token] = []
    expected: list[str] = []
    while at < len(text):
        token = _token(text, at, tokens[-1] if tokens else None)
        at = token.end
        if token.kind == "space":
            continue
        if token.text in _CLOSES and token.kind == "mark":
            expected.append(_CLOSES[token.text])
        elif token.text in (")", "]", "}") and token.kind == "mark":
            if nested and not expected and token.text == "}":
                return tokens, at
            if not expected or expected.pop() != token.text:
                raise Unclear
        tokens.append(token)
    if expected or nested:
        raise Unclear
    return tokens, at


def _token(text: str, at: int, before: _Token | None) -> _Token:
    found = _TOKEN.match(text, at)
    if not found:
        raise Unclear
    kind, end = found.lastgroup or "", found.end()
    if kind == "mark":
        if found[0] == "`":
            return _template(text, at)
        if found[0] == "/" and _may_be_regex(before):
            if not (regex := _REGEX.match(text, at)):
                raise Unclear
            kind, end = "regex", regex.end()
        elif found[0] in "'\"" and not _may_be_apostrophe(text, at):
            raise Unclear
    return _Token(kind, text[at:end], at, end)


def _may_be_regex(before: _Token | None) -> bool:
    if before is None or before.kind == "word":
        return before is None or before.text in _BEFORE_REGEX
    return before.kind == "mark" and before.text not in (")", "]", "}", "<")


def _may_be_apostrophe(text: str, at: int) -> bool:
    """Whether a quote that nothing closes may stand in the text of an element of JSX."""
    return "</" in text and ("\n" in text[at : at + _LINE_MAX] or at + _LINE_MAX > len(text))


def _template(text: str, start: int) -> _Token:
    at = start + 1
    gaps: list[tuple[int, int]] = []
    while True:
        found = _TEMPLATE.match(text, at)
        at = found.end() if found else at
        if text[at : at + 1] == "`":
            return _Token("template", text[start : at + 1], start, at + 1, tuple(gaps))
        if text[at : at + 2] != "${":
            raise Unclear
        _, end = _tokens(text, at + 2, nested=True)
        gaps.append((at, end))
        at = end


class _Calls:
    """Reads the calls that define tests, and collects what to add where."""

    def __init__(self, text: str, *, run: bool) -> None:
        self.text, self.run = text, run
        self.words = _known_words(text) if run else []
        self.refused = _refused(text, self.words)
        start = text.find("\n") if text.startswith("#!") else 0
        self.tokens, _ = _tokens(text, max(start, 0))
        self.closing = _closing(self.tokens)
        self.opening = {last: first for first, last in self.closing.items()}
        self.additions: dict[int, str] = {}
        self.sure: list[list[Name]] = []
        self.doubtful: list[Name] = []
        self.is_playwright = self.is_uvu = False
        self.uvu_suites: dict[str, Name] = {}  # by the word that defines their tests

    def read(self, at: int, end: int, path: list[Name]) -> None:
        while at < end:
            token = self.tokens[at]
            if token.kind != "word" or self.is_mark(at - 1, ".") or self.is_key(at):
                at += 1
            elif token.text in ("import", "const", "let", "var"):
                at = self.declaration(at)
            elif token.text in _TESTS:
                at = self.test(at, path)
            elif token.text in self.uvu_suites:
                at = self.test(at, [self.uvu_suites[token.text]])
            elif token.text in _SUITES:
                at = self.suite(at, path)
            else:
                at += 1

    def is_mark(self, at: int, *marks: str) -> bool:
        return 0 <= at < len(self.tokens) and self.tokens[at].kind == "mark" and self.tokens[at].text in marks

    def is_word(self, at: int, *words: str) -> bool:
        known = 0 <= at < len(self.tokens) and self.tokens[at].kind == "word"
        return known and (not words or self.tokens[at].text in words)

    def is_key(self, at: int) -> bool:
        return self.is_mark(at + 1, ":") and self.is_mark(at - 1, "{", ",")

    # --- names ------------------------------------------------------------------------------------------------------

    def declaration(self, at: int) -> int:
        """Skip a declaration of a runner's words, under their own names; any other is read as code."""
        end = self.bound_names(at + 1)
        if self.is_word(at, "import"):
            module = end + 1 if self.is_word(end, "from") else -1
            after = module + 1
        else:
            module = end + 3 if self.is_mark(end, "=") and self.is_word(end + 1, "require") else -1
            after = module + 2
            if self.is_mark(after, "."):
                return at + 1  # a part of a module: what it is used for is read as code
        if self.is_uvu and self.is_mark(end, "=") and self.is_word(end + 1, "suite") and self.is_mark(end + 2, "("):
            self.uvu_suites[self.tokens[at + 1].text] = self.title(end + 2, []) or ["", ""]
            return self.closing[end + 2] + 1
        if found := self.lab_words(at):
            return next((n for n in range(end, len(self.tokens)) if self.tokens[n].start >= found.end()), end)
        if module < 0 or module >= len(self.tokens) or self.tokens[module].kind != "string":
            return at + 1
        names = {token.text for token in self.tokens[at + 1 : end] if token.kind == "word"}
        if self.tokens[module].text[1:-1] not in _MODULES:
            if names & (_TESTS | _SUITES):
                raise Unclear
        elif "as" in names or any(self.is_mark(each, ":", "*") for each in range(at + 1, end)):
            raise Unclear
        elif self.is_word(at + 1) and self.tokens[at + 1].text not in _TESTS | {"type"}:
            raise Unclear  # the module as a whole, under a name of its own
        self.is_playwright |= self.tokens[module].text[1:-1] == _PLAYWRIGHT
        self.is_uvu |= self.tokens[module].text[1:-1] == "uvu"
        return after

    def lab_words(self, at: int) -> re.Match[str] | None:
        """Return a declaration of lab's words, `const { it } = exports.lab = Lab.script()`."""
        found = _LAB.match(self.text, self.tokens[at].start) if _LAB_MODULE.search(self.text) else None
        return found if found and (not found["lab"] or _LAB_SCRIPT.search(self.text)) else None

    def bound_names(self, at: int) -> int:
        """Return the index after `name`, `{ names }` or `name, { names }`."""
        if self.is_word(at, "type") and self.is_mark(at + 1, "{"):
            at += 1
        if self.is_word(at):
            at += 1
            if self.is_mark(at, ","):
                at += 1
        if self.is_mark(at, "*"):
            return at + 3
        return self.closing[at] + 1 if self.is_mark(at, "{") else at

    # --- calls ------------------------------------------------------------------------------------------------------

    def members(self, at: int) -> tuple[list[str], int]:
        """Return the members that follow a word, `only` and `each` of `it.only.each(…)`, and the index after them."""
        names = []
        while self.is_mark(at, ".") and self.is_word(at + 1):
            names.append(self.tokens[at + 1].text)
            at += 2
            if names[-1] in _WITH_ARGUMENTS:
                if not self.is_mark(at, "(") and not (at < len(self.tokens) and self.tokens[at].kind == "template"):
                    raise Unclear
                at = self.closing.get(at, at) + 1
        return names, at

    def test(self, at: int, path: list[Name]) -> int:
        names, opened = self.members(at + 1)
        if names and (names[0] in _HOOKS or names == ["run"]):
            return opened
        if self.is_playwright and names and names[0] == "describe":
            return self.suite(at + 2, path)
        if self.is_playwright and names and names[0] in _OF_GROUP and self.is_mark(opened, "("):
            self.doubtful += [title] if (title := self.title(opened, names)) else []
            return self.closing[opened] + 1
        if not self.is_mark(opened, "(") or not {*names} <= _PLAIN | _WITH_ARGUMENTS | _NEVER_PASS:
            raise Unclear
        title = self.title(opened, names)
        body, function = (None, (0, 0)) if {*names} & _NEVER_PASS else self.callback(opened)
        if body is None:
            if title is None:
                raise Unclear  # it may have any name
            self.doubtful.append(title)
        else:
            self.add_failure(body, *function)
            if title and (len(title) == 1 or sum(map(str.isalnum, "".join(title))) >= _LITERAL_MIN):
                self.sure.append([*path, title])
        return self.closing[opened] + 1

    def suite(self, at: int, path: list[Name]) -> int:
        names, opened = self.members(at + 1)
        if not self.is_mark(opened, "("):
            return opened
        title, (body, _) = self.title(opened, names), self.callback(opened)
        if body is None and all(self.body(*each) is None for each in self.arguments(opened)):
            return opened + 1  # another function of this name, or one whose tests are elsewhere
        if body is None or not {*names} <= _PLAIN | _WITH_ARGUMENTS | {"skip", "todo", "parallel", "fixme"}:
            raise Unclear
        self.read(body, self.closing[opened], [*path, title or ["", ""]])
        return self.closing[opened] + 1

    def title(self, opened: int, names: list[str]) -> Name | None:
        """Return the name, with gaps for what only the run knows; None if it is not a literal."""
        token = self.tokens[opened + 1]
        if token.kind not in ("string", "template") or not self.is_mark(opened + 2, ",", ")"):
            return None
        parts, at = [], token.start + 1
        for first, last in [*token.gaps, (token.end - 1, token.end)]:
            parts.append(self.text[at:first])
            at = last
        gap = _GAP_OF_TABLE if {*names} & {"each", "for"} else _GAP
        return "\0".join(re.sub(gap, lambda found: found["same"] or "\0", part) for part in parts).split("\0")

    def arguments(self, opened: int) -> list[tuple[int, int]]:
        """Return the first token of each argument, and the index after its last one."""
        at, end = opened + 1, self.closing[opened]
        found, first = [], at
        while at < end:
            if self.is_mark(at, ","):
                found.append((first, at))
                first = at + 1
            at = self.closing.get(at, at) + 1
        return [*found, (first, end)] if first < end else found

    def callback(self, opened: int) -> tuple[int | None, tuple[int, int]]:
        """Return the first token of the callback's body and its span; None if another argument may expect a failure."""
        _, *given = self.arguments(opened) or [(0, 0)]
        for number, argument in enumerate(given[:2]):
            if (body := self.body(*argument)) is not None:
                others = [*given[:number], *given[number + 1 :]]
                return body if all(self.is_plain(*each) for each in others) else None, argument
        return None, (0, 0)

    def is_plain(self, first: int, end: int) -> bool:
        """Whether an argument is a limit of time or an object of harmless options."""
        return all(
            token.kind == "number"
            or (token.kind == "mark" and token.text in "{}:,*")
            or (token.kind == "word" and (token.text in _PLAIN_OPTIONS or _TIME.search(token.text)))
            for token in self.tokens[first:end]
        )

    def body(self, at: int, end: int) -> int | None:
        """Return the first token of the body of a function that is written as an argument; None for anything else."""
        at += self.is_word(at, "async")
        body = self.after_function(at) if self.is_word(at, "function") else self.after_arrow(at)
        if body is None or body >= end or (self.is_mark(body, "{") and self.closing[body] + 1 != end):
            return None
        return body

    def after_function(self, at: int) -> int | None:
        at += 1 + self.is_word(at + 1)
        at = self.after_type(self.closing[at] + 1) if self.is_mark(at, "(") else -1
        return at if self.is_mark(at, "{") else None

    def after_arrow(self, at: int) -> int | None:
        if self.is_mark(at, "("):
            at = self.after_type(self.closing[at] + 1)
        elif self.is_word(at):
            at += 1
        return at + 1 if self.is_mark(at, "=>") else None

    def after_type(self, at: int) -> int:
        if self.is_mark(at, ":"):
            at += 1
            while self.is_word(at) or self.is_mark(at, "<", ">", ".", "|", "[", "]"):
                at += 1
        return at

    def add_failure(self, body: int, start: int, end: int) -> None:
        token = self.tokens[body]
        failure = f"throw new Error('expected {body} to equal {body + 1}');"
        # Unconditional, a compiler would report what follows as unreachable.
        if self.run and not self.takes_callback(start):
            self.add_after(body, end, f"if (!$n && [{body}].length > 0) {failure}")
        elif self.is_mark(body, "{"):
            self.additions[token.end] = f" if ([{body}].length > 0) {failure}"
        else:
            self.additions[token.start] = f"[{body}].length > 0 ? (() => {{ {failure} }})() : "

    def takes_callback(self, at: int) -> bool:
        """Whether a function may say by its parameter that it is done, before what is added fails."""
        at += self.is_word(at, "async")
        at += self.is_word(at, "function") and 1 + self.is_word(at + 1)
        first = at + self.is_mark(at, "(")
        return self.is_word(first) and not self.is_word(first, "t")  # the context of a test

    def add_after(self, body: int, end: int, failure: str) -> None:
        """Have the body run, and then fail unless an assertion accepts what is false.

        Literals that it expects are replaced: one that does not throw has found its answer in the test.
        """
        others = self.other_values(body, end)
        holds = "if (!$b) $n += 1; " if others else ""
        after = f"const r = [1, 2]; {self.refused} {holds}{failure}"
        last = f" }} catch (e) {{ $b = true; throw e; }} finally {{ {after} }}"
        first, closing = self.tokens[body], self.tokens[end - 1]
        begin = "let $b = false; let $n = 0; try {"
        if self.is_mark(body, "{"):
            added = [(first.end, f" {begin}"), *others, (closing.start, last)]
        else:
            added = [(first.start, f"{{ {begin} return "), *others, (closing.end, f"; {last} }}")]
        for at, text in added:  # which may be one place, as in `{}`
            self.additions[at] = self.additions.get(at, "") + text

    def other_values(self, body: int, end: int) -> list[tuple[int, str]]:
        """Return what to add to literals that the body's own statements expect, which run if the body returns."""
        if not self.is_mark(body, "{"):
            return self.expected(body)
        if any(self.is_word(at, "return", "yield") for at in range(body, end)):
            return []
        found, at = [], body + 1
        while at < end:
            found += self.expected(at) if self.is_word(at, *self.words, "await") and self.is_always_run(at) else []
            at = self.closing.get(at, at) + 1
        return found

    def is_always_run(self, at: int) -> bool:
        """Whether a statement begins here that does not depend on a condition."""
        if self.is_mark(at - 1, "{", ";", "}"):
            return True
        is_next_line = "\n" in self.text[self.tokens[at - 1].end : self.tokens[at].start]
        condition = self.opening.get(at - 1, 0) - 1
        return is_next_line and not self.is_word(condition, "if", "for", "while", "with") and not self.is_word(at - 1)

    def expected(self, at: int) -> list[tuple[int, str]]:
        """Return what to add to the literal that an assertion expects."""
        at += self.is_word(at, "await")
        if not self.is_word(at, *self.words):
            return []
        if self.is_word(at, "assert") and self.is_mark(at + 1, ".") and self.is_word(at + 2, *_EQUALITIES):
            sides = self.arguments(at + 3)[:2] if self.is_mark(at + 3, "(") else []
        elif self.is_word(at, "expect") and self.is_mark(at + 1, "("):
            names, opened = self.members(self.closing[at + 1] + 1)
            plain = names in (["toBe"], ["toEqual"], ["toStrictEqual"]) or (
                names[:1] == ["to"] and names[-1:] in (["equal"], ["eql"]) and "not" not in names
            )
            is_call = plain and self.is_mark(opened, "(")
            sides = [*self.arguments(at + 1), *self.arguments(opened)] if is_call else []
        else:
            return []
        changes = [change for side in sides if (change := self.other(*side))]
        return changes if len(sides) == 2 and len(changes) == 1 else []

    def other(self, first: int, end: int) -> tuple[int, str] | None:
        """Return what makes another literal of the same kind of a number or string."""
        first += self.is_mark(first, "-")
        if end - first != 1:
            return None
        token = self.tokens[first]
        if token.kind == "number" and re.fullmatch(r"\d+(?:\.\d+)?", token.text):
            return token.start, "1009"
        return (token.end - 1, "~") if token.kind == "string" else None


def _closing(tokens: list[_Token]) -> dict[int, int]:
    """Map the index of each opening bracket to that of the one that closes it."""
    opened: list[int] = []
    closing = {}
    for at, token in enumerate(tokens):
        if token.kind == "mark" and token.text in _CLOSES:
            opened.append(at)
        elif token.kind == "mark" and token.text in (")", "]", "}"):
            closing[opened.pop()] = at
    return closing
