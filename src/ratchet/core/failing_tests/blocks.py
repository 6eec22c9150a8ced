"""Rewrites tests in Ruby, Elixir, Lua and R: blocks that end in a line of their own, indented like their first one.

Indentation tells in which suites a test stands. A test whose body may catch the failure keeps its body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ratchet.core.failing_tests.literals import LITERAL, blank_elixir, blank_lua, blank_r, blank_ruby
from ratchet.core.failing_tests.result import Name, Rewriting, failing_tests

_ANY: Name = ["", ""]
_SUITES = frozenset(("describe", "fdescribe", "context", "fcontext", "feature", "insulate", "expose"))
_LETTERS_MIN = 4  # of a name with gaps, below which it says too little
_GAP = re.compile(r"\\(?P<same>['\"\\#])|\\.|#\{(?:.*\}|.*)", re.DOTALL)
_RETURN = re.compile(r"\breturn\b")
_TITLE = rf"(?P<title>{LITERAL}*+)(?P<rest>(?:[^{{}}\n]|,[ \t]*\n){{0,400}}?)"
_RUBY = re.compile(
    rf"""^(?P<indent>[ \t]*)(?:(?P<end>end\b|\}})
    |def[ \t]+(?P<name>test\w*[?!]?)(?:[ \t]*\([ \t]*\))?(?=[ \t]*$)
    |(?:RSpec\.)?(?P<word>f?it|specify|example|scenario|test|should|f?describe|f?context|feature|shared_\w+)
     (?:[ \t]*\(|[ \t])[ \t]*{_TITLE}(?:\bdo\b|(?<=\))[ \t]*\{{)(?:[ \t]*\|[^|\n]*\|)?)""",
    re.MULTILINE | re.VERBOSE,
)
_ELIXIR = re.compile(
    rf"""^(?P<indent>[ \t]*)(?:(?P<end>end\b)
    |(?P<word>test|property|describe)[ \t(]+{_TITLE.replace("{}", "")}\bdo(?=[ \t]*$))""",
    re.MULTILINE | re.VERBOSE,
)
_LUA = re.compile(
    rf"""^(?P<indent>[ \t]*)(?:(?P<end>end\b)
    |(?P<word>it|test|spec|describe|context|insulate|expose)[ \t]*\([ \t]*{_TITLE}
     ,[ \t]*(?:async[ \t]*\([ \t]*)?function[ \t]*\([^()\n]*\))""",
    re.MULTILINE | re.VERBOSE,
)
_R = re.compile(
    rf"""^(?P<indent>[ \t]*)(?:(?P<end>\}})
    |(?:testthat::)?(?P<word>test_that|it|describe)[ \t]*\([ \t]*{_TITLE},[ \t]*\{{)""",
    re.MULTILINE | re.VERBOSE,
)


class Language(NamedTuple):
    blank: Callable[[str], str]
    block: re.Pattern[str]  # the beginning of a test or suite, up to its body, or the end of one
    definition: re.Pattern[str]  # what gives words another meaning in this file
    failure: str
    paths: Callable[[str, Sequence[Name], Name], list[list[Name]]]


def rewrite(language: Language, text: str) -> Rewriting:
    """Put a failure first into the body of each test."""
    code = language.blank(text)
    own = {word for found in language.definition.finditer(code) for word in re.findall(r"\w+", found[1])}
    additions = dict[int, str]()
    sure, doubtful = list[list[Name]](), list[Name]()
    above: list[tuple[int, str, Name]] = []  # the suites around: indentation, word, name
    for found in language.block.finditer(code):
        depth = len(found["indent"].expandtabs())
        above = [suite for suite in above if suite[0] < depth]
        if found["end"]:
            continue
        word = found["word"] or "def"
        name = [found["name"]] if word == "def" else _title(text, found)
        if word in _SUITES or word.startswith("shared_"):
            above.append((depth, word, name or _ANY))
            continue
        is_shared = any(suite.startswith("shared_") for _, suite, _ in above)  # where it runs is not said here
        paths = language.paths(word, [each for _, _, each in above], name) if name and not is_shared else []
        if word in own or _may_catch(code, found):
            doubtful += [path[-1] for path in paths]
        else:
            additions[found.end()] = language.failure.format(given=found.end(), wanted=found.end() + 1)
            sure += paths
    return Rewriting(additions, failing_tests(sure, doubtful))


def _title(text: str, found: re.Match[str]) -> Name | None:
    """Return the name, with gaps for what only the run knows; None if it is not a literal, or says too little."""
    title, rest = text[found.start("title") : found.end("title")], found["rest"].strip()
    if title[:1] not in ("'", '"') or rest[:1] not in ("", ",", ")") or rest[1:].lstrip()[:1] == LITERAL:
        return None
    name = _GAP.sub(lambda gap: gap["same"] or "\0", title[1:-1]).split("\0")
    return name if len(name) == 1 or sum(map(str.isalnum, "".join(name))) >= _LETTERS_MIN else None


def _may_catch(code: str, found: re.Match[str]) -> bool:
    """Whether a body may go on after a failure, or does not end where its indentation says."""
    if code[found.end() :].partition("\n")[0].strip():
        return False  # it ends in the same line
    cleanup = 0
    line_at_depth = re.compile(rf"^{found['indent']}(?P<word>\w+|[^\s{LITERAL}])", re.MULTILINE)
    for line in line_at_depth.finditer(code, found.end()):
        if line["word"] not in ("after", "ensure"):
            may_return = cleanup and _RETURN.search(code, cleanup, line.start())
            return line["word"] not in ("end", "}") or bool(may_return)
        cleanup = line.end()
    return True


def _joined(*names: Name) -> Name:
    parts = [""]
    for first, *rest in names:
        parts = [*parts[:-1], parts[-1] + first, *rest]
    return parts


def _ruby_paths(word: str, suites: Sequence[Name], name: Name) -> list[list[Name]]:
    """Return the names of a test in RSpec and, one class around it, in Minitest, test-unit, Rails and Shoulda."""
    if word == "def":
        return [[_ANY, name]]
    paths = [[*suites, name], [_ANY, _joined(["test_0_"], name)]]
    if word == "test":
        paths += [
            [_ANY, _joined(["test_"], [re.sub(r"\s+", "_", part) for part in name])],
            [_ANY, _joined(["test: "], name)],
        ]
    if word == "should":
        paths += [[_ANY, _joined(["test: ", "should "], name, [". "])]]
    return paths


def _elixir_paths(word: str, suites: Sequence[Name], name: Name) -> list[list[Name]]:
    return [[_ANY, _joined([f"{word} "], *(_joined(suite, [" "]) for suite in suites), name)]]


def _lua_paths(_word: str, suites: Sequence[Name], name: Name) -> list[list[Name]]:
    """Return the whole name, alone or below the run, which busted's report in XML adds."""
    whole = _joined(*(_joined(suite, [" "]) for suite in suites), name)
    return [[whole], [_ANY, whole]]


def _r_paths(_word: str, suites: Sequence[Name], name: Name) -> list[list[Name]]:
    return [[_joined(*(_joined(suite, [": "]) for suite in suites), name)]]


RUBY = Language(
    blank=blank_ruby,
    block=_RUBY,
    definition=re.compile(r"\bdef[ ]+(?:self\.)?(\w+\b(?![?!=]))"),
    failure="; raise Exception, 'expected {given}, got {wanted}' if [{given}].length > 0;",
    paths=_ruby_paths,
)
ELIXIR = Language(
    blank=blank_elixir,
    block=_ELIXIR,
    definition=re.compile(r"\b(?:defmacrop?|except:)[ \t]*(\w+|\[[^\]]*)"),
    failure=' if length([{given}]) > 0, do: raise("expected {given}, got {wanted}")',
    paths=_elixir_paths,
)
LUA = Language(
    blank=blank_lua,
    block=_LUA,
    definition=re.compile(r"\b(?:local(?![ \t]+function\b)|function)[ \t]+([\w, \t]*)"),
    failure=" if #'{given}' > 0 then error('expected {given}, got {wanted}') end",
    paths=_lua_paths,
)
R = Language(
    blank=blank_r,
    block=_R,
    definition=re.compile(r"\b(test_that|it|describe)[ \t]*(?:<-|=[ \t]*function)"),
    failure=' if (length("{given}") > 0) stop("expected {given}, got {wanted}");',
    paths=_r_paths,
)
