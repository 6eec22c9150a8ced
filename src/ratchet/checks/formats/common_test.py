"""Parses `suite.log` of Erlang's Common Test: a block of `=key value` lines for each case, written live."""

from __future__ import annotations

import re
from typing import BinaryIO

from ratchet.checks.formats import Parsed, distinct
from ratchet.checks.formats.text import HeadAndTail, clip, lines
from ratchet.core.report import Failure, Frame, TestResult, TestStatus

_KEY = re.compile(r"^=(?P<key>\w+) +(?P<value>.*)$")
_RESULT = re.compile(r"^(?P<word>ok|failed|skipped|auto_skipped)\b:? ?(?P<rest>.*)$", re.S)
_GROUP = re.compile(r"\{name,'?(?P<name>[^},']+)'?\}")
_FRAME = re.compile(
    r"\{(?P<module>'?[\w@]+'?),\s*(?P<function>'[^']*'|\w+),\s*(?:\d+|\[[^\[\]]*\]),\s*"
    r'\[\{file,\s*"(?P<file>[^"]+)"\},\s*\{line,\s*(?P<line>\d{1,9})\}'
)
_ASSERTED = re.compile(r"^\{?\{(?P<type>assert\w*),\s*\[\{module,")
_TYPE = re.compile(r"^[{\[]*(?P<type>[a-z]\w*)")
_HOOKS = ("init_per_suite", "end_per_suite", "init_per_group", "end_per_group")
_STATUS = {
    "ok": TestStatus.PASSED,
    "failed": TestStatus.FAILED,
    "skipped": TestStatus.SKIPPED,
    # Skipped because the setup failed; rebar3 fails for it.
    "auto_skipped": TestStatus.ERROR,
}
_SUMS = {"failed": "failed", "successful": "passed", "user_skipped": "skipped", "auto_skipped": "errors"}

SIGN = re.compile(rb"^=case ", re.M)


def parse(stream: BinaryIO) -> Parsed:
    """Return the tests as `suite:case` or `suite:group/case`. The log ends with its totals."""
    reader = _Log()
    for line in lines(stream):
        reader.line(line)
    return reader.parsed()


class _Log:
    def __init__(self) -> None:
        self.tests: list[TestResult] = []
        self.reported: dict[str, int] = {}
        self.groups: list[str] = []
        self.case = ""
        self.result: HeadAndTail | None = None
        self.props, self.elapsed, self.finished = "", 0.0, False

    def line(self, line: str) -> None:
        if match := _KEY.match(line):
            self._key(match.group("key"), match.group("value"))
        elif self.result and line.startswith(" "):
            self.result.add(f"\n{line.strip()}")

    def _key(self, key: str, value: str) -> None:
        match key:
            case "case":
                self._settle()
                self.case, self.result, self.props, self.elapsed = value.strip(), None, "", 0.0
            case "group_props":
                self.props = value
            case "result":
                self.result = HeadAndTail()
                self.result.add(value)
            case "elapsed":
                self.elapsed = _seconds(value)
            case "finished":
                self._settle()
                self.finished = True
            case _ if self.finished and key in _SUMS and value.strip().isdecimal():
                self.reported[_SUMS[key]] = int(value.strip()[:9])

    def _settle(self) -> None:
        suite, _, name = self.case.partition(":")
        if not self.result or not name:
            return
        if name in _HOOKS:
            self._enter_or_leave(name)
        elif match := _RESULT.match(self.result.text()):
            self._take(suite, name, match.group("word"), match.group("rest"))
        self.case, self.result = "", None

    def _enter_or_leave(self, hook: str) -> None:
        group = _GROUP.search(self.props)
        if hook == "init_per_group" and group:
            self.groups = [*self.groups, group.group("name")][:50]
        elif hook == "end_per_group":
            self.groups = self.groups[:-1]

    def _take(self, suite: str, name: str, word: str, rest: str) -> None:
        status = _STATUS[word]
        failure = _failure(rest) if word in ("failed", "auto_skipped") else None
        self.tests.append(
            TestResult(
                id=f"{suite}:{'/'.join([*self.groups, name])}",
                name=name,
                suite=[suite, *self.groups],
                status=status,
                duration_s=self.elapsed,
                phase="setup" if word == "auto_skipped" else "call",
                reason=rest.strip('"') if status is TestStatus.SKIPPED else "",
                failure=failure,
            )
        )

    def parsed(self) -> Parsed:
        suite, _, name = self.case.partition(":")
        running = [f"{suite}:{'/'.join([*self.groups, name])}"] if name and not self.result else []
        self._settle()
        return Parsed(
            tests=distinct(self.tests),
            reported=self.reported,
            ended=self.finished,
            partial=bool(self.tests or running) and not self.finished,
            running=running,
        )


def _seconds(text: str) -> float:
    try:
        return round(min(max(float(text), 0.0), 1e9), 6)
    except ValueError:
        return 0.0


def _failure(term: str) -> Failure:
    """Build a failure from the term that ended a case: an assertion or an exception, and the stack."""
    frames = [
        Frame(file=match["file"], line=int(match["line"]), function=f"{match['module']}:{match['function']}")
        for match in _FRAME.finditer(term)
        if "/" in match["file"]  # Erlang's own modules have no folder
    ][::-1]
    begun = term.find("[{file,")
    text = " ".join((term[: term.rfind("[", 0, begun)].rstrip(" ,\n[") if begun > 0 else term).split())
    asserted = _ASSERTED.match(term)
    kind = asserted or _TYPE.match(term)
    return Failure(
        type=kind.group("type") if kind else "",
        message=clip((value_of(term, "expression") or text).strip('"') if asserted else _closed(text)),
        expected=(value_of(term, "expected") or value_of(term, "pattern")) if asserted else None,
        actual=value_of(term, "value") if asserted else None,
        file=frames[-1].file if frames else "",
        line=frames[-1].line if frames else 0,
        frames=frames,
    )


def _closed(term: str) -> str:
    """Close a term that was cut before its stack."""
    short = term.count("{") - term.count("}")
    return term.removeprefix("{") + "}" * (short - 1) if short > 0 and term.startswith("{") else term


def value_of(term: str, key: str) -> str | None:
    """Return the second element of the tuple `{key,…}`, as printed."""
    start = term.find(f"{{{key},")
    if start < 0:
        return None
    begin = start + len(key) + 2
    depth, quote = 1, ""
    for at in range(begin, len(term)):
        sign = term[at]
        if quote:
            quote = "" if sign == quote and term[at - 1] != "\\" else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "{[":
            depth += 1
        elif sign in "}]":
            depth -= 1
            if not depth:
                return " ".join(term[begin:at].split()).strip()
    return None
