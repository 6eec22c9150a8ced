"""Rewrites tests in Go: functions at the top level of a file, found by their signature outside of literals."""

from __future__ import annotations

import re
from itertools import count

from ratchet.core.failing_tests.result import Rewriting, Unclear, failing_tests

_TESTING = re.compile(r"^\s*(?:import\s+)?\"testing\"", re.MULTILINE)
_GENERATED = re.compile(r"^// Code generated .* DO NOT EDIT\.$", re.MULTILINE)
_TEST = re.compile(
    r"""^func[ \t]+(?P<name>(?:Test|Fuzz)\w*)[ \t]*
    \([ \t]*(?P<parameter>\w*)(?P<space>[ \t]*)\*testing\.[TF][ \t]*\)[ \t]*\{""",
    re.MULTILINE | re.VERBOSE,
)
_FUNCTION = re.compile(r"^func[ \t]+(?P<name>(?:Test|Fuzz)\w*)", re.MULTILINE)
_ANY = ["", ""]  # the package, which only the run knows
# One that nothing closes is taken too, so that the time grows with the length only.
_LITERAL = re.compile(
    r"""//[^\n]*|/\*(?:.*?\*/|(?P<open_comment>.*))|`[^`]*(?:`|(?P<open_raw>\Z))
    |"(?:[^"\\\n]|\\[^\n])*(?:"|(?P<open_string>))|'(?:[^'\\\n]|\\[^\n])*(?:'|(?P<open_rune>))""",
    re.VERBOSE | re.DOTALL,
)


def rewrite(path: str, text: str) -> Rewriting:
    """Put a failure first into the body of each test; its subtests do not run then."""
    if not path.endswith("_test.go") or not _TESTING.search(text) or _GENERATED.search(text):
        raise Unclear
    additions = dict[int, str]()
    sure = []
    for found in _TEST.finditer(_LITERAL.sub(_blank, text)):
        name, parameter = found["name"], found["parameter"]
        if name[len("Test") :][:1].islower():
            continue  # to Go it is no test
        if parameter in ("", "_"):
            added = next(word for n in count() if (word := f"t{n}") not in text)
            additions[found.end("parameter")] = added if parameter else f"{added} "
            parameter += added
        at = found.end()
        additions[at] = f' {parameter}.Fatal("expected {at}, got {at + 1}");'
        sure.append([_ANY, [name]])
    return Rewriting(additions, failing_tests(sure, []))


def names_of_tests(text: str) -> list[str]:
    """Return the functions of any file that may be tests."""
    return [found["name"] for found in _FUNCTION.finditer(text)]


def _blank(literal: re.Match[str]) -> str:
    """Return spaces in place of a literal or comment, with its line feeds."""
    if literal.lastgroup:
        raise Unclear
    return re.sub(r"[^\n]", " ", literal[0])
