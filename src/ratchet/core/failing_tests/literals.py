"""Blanks the literals and comments of Ruby, Elixir, Lua and R, so that the rest of a file can be read line by line."""

from __future__ import annotations

import re

from ratchet.core.failing_tests.result import Unclear

LITERAL = "\x01"  # stands for each character of a literal, line feeds too

_RUBY = re.compile(
    r"""(?P<space>[ \t]+|\\\n)|(?P<line>\n)|(?P<comment>\#[^\n]*)
    |(?P<operator>\bdef[ ]+(?:self\.)?[-+*/%<>=!~^&|`\[\]]+|:[-+*/%<>=!~^&|`]+|\.[/%`]|\$[^\w\s])
    |(?P<heredoc><<(?P<indented>[~-]?)(?:(?P<quote>["'`])(?P<quoted>[^"'`\n]+)(?P=quote)|(?P<word>[A-Z_]\w*)))
    |(?P<percent>%[qQwWiIrsx]?[(\[{<|!/])|(?P<string>["'`])|(?P<regex>/)|(?P<letter>\?(?:\\[^\n]|[^\s\w\\]|\w(?!\w)))
    |(?P<name>[^\W\d]\w*[?!]?)|(?P<number>\d\w*)|(?P<mark>.)""",
    re.VERBOSE,
)
_BEFORE_VALUE = frozenset(
    (
        "if",
        "unless",
        "while",
        "until",
        "when",
        "case",
        "and",
        "or",
        "not",
        "return",
        "in",
        "then",
        "else",
        "elsif",
        "do",
        "begin",
        "yield",
        "rescue",
    )
)
_ELIXIR = re.compile(
    r"""(?P<comment>\#[^\n]*)|(?P<block>(?:~[a-zA-Z]+)?(?P<quotes>\"{3}|'{3}))
    |(?P<sigil>~(?:[a-z]|[A-Z][A-Z\d]*)[(\[{<|/"'])|(?P<string>["'])|(?P<letter>\?(?:\\.|\S))
    |(?P<name>[^\W\d]\w*[?!]?)|(?P<mark>[\s\S])""",
    re.VERBOSE,
)
_LUA = re.compile(
    r"""(?P<comment>--)?\[(?P<level>=*)\[(?:.*?\](?P=level)\]|(?P<open>.*))|--[^\n]*
    |"(?:[^"\\\n]|\\.)*(?:"|(?P<double>))|'(?:[^'\\\n]|\\.)*(?:'|(?P<single>))""",
    re.VERBOSE | re.DOTALL,
)
_R = re.compile(
    r"""(?P<comment>\#[^\n]*)|[rR](?P<quote>["'])(?P<dashes>-*)\((?:.*?\)(?P=dashes)(?P=quote)|(?P<raw>.*))
    |"(?:[^"\\]|\\.)*(?:"|(?P<double>))|'(?:[^'\\]|\\.)*(?:'|(?P<single>))|`[^`\n]*`?""",
    re.VERBOSE | re.DOTALL,
)
_CLOSES = {"(": ")", "[": "]", "{": "}", "<": ">"}


def blank_lua(text: str) -> str:
    return _blanked(_LUA, ("open", "double", "single"), text)


def blank_r(text: str) -> str:
    return _blanked(_R, ("raw", "double", "single"), text)


def _blanked(literal: re.Pattern[str], unclosed: tuple[str, ...], text: str) -> str:
    def blank(found: re.Match[str]) -> str:
        if any(found[each] is not None for each in unclosed):
            raise Unclear
        is_comment = found[0].startswith(("--", "#"))
        return re.sub(r"[^\n]", " ", found[0]) if is_comment else LITERAL * len(found[0])

    return literal.sub(blank, text)


def blank_ruby(text: str) -> str:
    return _Ruby(text).blanked()


def blank_elixir(text: str) -> str:
    return _Elixir(text).blanked()


class _Blanker:
    """Reads code from left to right; what stands in a gap of a literal, `#{…}`, is code again."""

    token: re.Pattern[str]

    def __init__(self, text: str) -> None:
        self.text = text
        self.gaps = 0  # around the current token

    def blanked(self) -> str:
        at = self.start()
        parts = [LITERAL * at]
        while at < len(self.text):
            found = self.match(at)
            end = self.end_of_token(found)
            code = "" if end > found.end() else found[0]
            if found.lastgroup in ("comment", "line"):
                code = "\n" if found[0] == "\n" else " " * len(found[0])
            parts += [code, LITERAL * (end - at - len(code))]
            at = end
        return "".join(parts)

    def start(self) -> int:
        return 0

    def match(self, at: int) -> re.Match[str]:
        if not (found := self.token.match(self.text, at)):
            raise Unclear
        return found

    def end_of_token(self, found: re.Match[str]) -> int:
        """Return where a token ends: for one that opens a literal, where the literal does."""
        raise NotImplementedError

    def end_of_literal(self, at: int, close: str, nested: str = "", *, has_gaps: bool) -> int:
        depth = 0
        while at < len(self.text):
            letter = self.text[at]
            if letter == "\\":
                at += 1
            elif has_gaps and self.text.startswith("#{", at):
                at = self.end_of_gap(at + 2) - 1
            elif letter == close and not depth:
                return at + 1
            elif nested and letter in (close, nested):
                depth += 1 if letter == nested else -1
            at += 1
        raise Unclear

    def end_of_gap(self, at: int) -> int:
        depth = 0
        self.gaps += 1
        while at < len(self.text):
            found = self.match(at)
            at = self.end_of_token(found)
            if found[0] == "}" and not depth:
                self.gaps -= 1
                return at
            depth += {"{": 1, "}": -1}.get(found[0], 0)
        raise Unclear


class _Ruby(_Blanker):
    token = _RUBY

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.before = ""  # the last token
        self.is_apart = True  # whether space follows it
        self.documents: list[tuple[str, str]] = []  # that begin on the next line

    def start(self) -> int:
        return self.end_of_line(0)

    def end_of_token(self, found: re.Match[str]) -> int:
        kind, end = found.lastgroup or "", found.end()
        if kind == "space":
            self.is_apart = True
        elif kind == "line":
            end = self.end_of_line(end)
            self.before, self.is_apart = "\n", True
        elif kind != "comment":
            before, self.before = self.before, found[0]
            if kind in ("word", "heredoc", "percent", "string", "regex", "letter") and self.is_literal(before, found):
                end = self.end_of(kind, found)
                self.before = "literal"
            self.is_apart = False
        return end

    def is_literal(self, before: str, found: re.Match[str]) -> bool:
        """Whether a mark opens a literal here: in place of a value, or as the first argument of a call without
        parentheses."""
        if found["string"]:
            return True
        if before[-1:].isalnum() or before[-1:] in ("_", "?", "!"):
            if before in _BEFORE_VALUE:
                return True
            return before != "literal" and not before[0].isdigit() and self.is_apart and not self.before_space(found)
        return before not in (")", "]", "}")

    def before_space(self, found: re.Match[str]) -> bool:
        return self.text[found.end() : found.end() + 1] in (" ", "\n", "\t", "=") and not found["heredoc"]

    def end_of(self, kind: str, found: re.Match[str]) -> int:
        opening, at = found[0][-1], found.end()
        if kind == "letter":
            return at
        if found["heredoc"]:
            if self.gaps:
                raise Unclear
            self.documents.append((found["indented"], found["quoted"] or found["word"]))
            return at
        close = _CLOSES.get(opening, opening)
        has_gaps = opening != "'" and found[0][:2] not in ("%q", "%w", "%i", "%s")
        return self.end_of_literal(at, close, opening if opening in _CLOSES else "", has_gaps=has_gaps)

    def end_of_line(self, at: int) -> int:
        """Return where the text before the next line of code ends: documents, a comment, the rest of a file."""
        for indented, word in self.documents:
            lead = "[ \t]*" if indented else ""
            found = re.compile(rf"^{lead}{re.escape(word)}$", re.MULTILINE).search(self.text, at)
            if not found:
                raise Unclear
            at = found.end()
        self.documents.clear()
        if self.text.startswith("=begin", at):
            at = self.text.find("\n=end", at) + len("\n=end")
            if at < len("\n=end"):
                raise Unclear
        return len(self.text) if re.compile(r"__END__$", re.MULTILINE).match(self.text, at) else at


class _Elixir(_Blanker):
    token = _ELIXIR

    def end_of_token(self, found: re.Match[str]) -> int:
        kind, opening = found.lastgroup, found[0][-1]
        if kind == "block":
            return self.end_of_block(found)
        if kind not in ("sigil", "string"):
            return found.end()
        has_gaps = not (kind == "sigil" and found[0][1].isupper())
        return self.end_of_literal(found.end(), _CLOSES.get(opening, opening), has_gaps=has_gaps)

    def end_of_block(self, found: re.Match[str]) -> int:
        end = re.compile(rf"^[ \t]*{found['quotes']}", re.MULTILINE).search(self.text, found.end())
        if not end:
            raise Unclear
        return end.end()
