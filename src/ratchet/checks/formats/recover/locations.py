"""Finds the location that a text without a stack names."""

# One pattern, one line.
# ruff: noqa: E501

from __future__ import annotations

import re

from ratchet.checks.formats.recover.prefilter import rarest
from ratchet.checks.formats.recover.stacks import is_foreign, line_number, path_of
from ratchet.core.report import Frame

# What a text must contain to be searched, and the pattern.
_PLACES = [
    ("panicked at ", re.compile(r"panicked at (?:'.*', )?(?P<file>[^\s:']+\.rs):(?P<line>\d+)", re.S)),
    (
        "== [File] - ",
        re.compile(r"== \[File\] - (?P<file>(?!unknown location)[^\n]+?)\s+== \[Line\] -\s*(?P<line>\d+)"),
    ),
    ("- line", re.compile(r"- file *: (?P<file>(?!unknown location)[^\n]+)\n- line *: *(?P<line>\d+)")),
    (".php", re.compile(r" in (?P<file>\S+\.phpt?)\((?P<line>\d+)\)")),
    (" at line ", re.compile(r" in (?P<file>\S+) at line (?P<line>\d+)$", re.M)),
    (" (line ", re.compile(r"(?P<file>[^\s:()]+\.\w+) \(line (?P<line>\d+)\)")),
    ("(in test file ", re.compile(r"\(in test file (?P<file>[^,\n]+), line (?P<line>\d+)\)")),
    ("file ", re.compile(r"in (?:test )?file (?P<file>[^,\n]+), line (?P<line>\d+)")),
    (" line: ", re.compile(r" line: (?P<line>\d+) (?P<file>\S+\.\w+)$", re.M)),
    ("Error Trace:", re.compile(r"Error Trace:\s*(?P<file>[^\s:]+):(?P<line>\d+)")),
    (".go:", re.compile(r"^\s*(?P<file>[\w./-]+\.go):(?P<line>\d+): ", re.M)),
    (" line ", re.compile(r"^#?\s*(?:Failed (?:\(TODO\) )?test )?at (?P<file>\S+) line (?P<line>\d+)\.?$", re.M)),
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


# A row of a foreign stack is not a location.
_CALL = re.compile(r"^\s*at [\w.$<>/@-]+\([\w$-]+\.(?:java|kt|scala|groovy):\d+\)\s*$|^\s*at [^\n]+:line \d+\s*$", re.M)
_SIGNED = [(rarest(needle), needle, pattern) for needle, pattern in _PLACES]


def location(text: str) -> Frame | None:
    """Return the location of a failure without a stack: the first one in the project that the text names."""
    text = _CALL.sub("", text) if "at " in text else text
    for sign, needle, pattern in _SIGNED:
        for found in pattern.finditer(text) if sign in text and needle in text else ():
            if not is_foreign(found.group("file")):
                return Frame(file=path_of(found.group("file")), line=line_number(found.group("line")))
    return None
