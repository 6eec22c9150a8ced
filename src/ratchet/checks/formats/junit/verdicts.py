"""Interprets the children of a case: status, failure, reason for a skip, and whether it is a test at all."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from functools import lru_cache
from itertools import dropwhile
from textwrap import dedent

from msgspec.structs import replace

from ratchet.checks.formats import compiler, recover
from ratchet.checks.formats.junit import writers
from ratchet.checks.formats.junit.elements import Child
from ratchet.checks.formats.recover.failure_templates import Read, Texts
from ratchet.checks.formats.text import TAIL_LIMIT, clip, strip_control_characters
from ratchet.core.report import RED, Diagnostic, Failure, TestStatus

AGAIN = {"flakyFailure", "flakyError", "rerunFailure", "rerunError"}
BAD = {"failure", "error"}
_AFTER_ALL = {"rerunFailure", "rerunError"}  # child elements of attempts that failed
_USUAL = {
    "failure": "failure", "failed": "failure", "error": "error", "errored": "error",
    "skipped": "skipped", "skip": "skipped", "ignored": "skipped",
    "system-out": "system-out", "system-err": "system-err",
}  # fmt: skip


@lru_cache(maxsize=256)
def canonical_name(name: str) -> str:
    """Return the usual name of an element that some tools write in capitals or in a namespace."""
    return _USUAL.get(name.rpartition(":")[2].lower(), "")


def bad_of(children: list[Child]) -> Child | None:
    for names in (BAD, _AFTER_ALL):
        for child in children:
            if child.name in names:
                return child
    return None


def to_status(case: dict[str, str], children: list[Child]) -> TestStatus:
    names = [child.name for child in children]
    if "skipped" in names:
        skipped = children[names.index("skipped")].attributes
        if BAD.isdisjoint(names):
            return _skipped(skipped)
        if skipped.get("type") == "todo":  # node adds a failure to tests that are expected to fail
            return TestStatus.TODO
        # Catch2 marks tests that may fail; a test skipped for another reason cannot have failed.
        if "mayfail" in skipped.get("message", ""):
            return TestStatus.XFAILED
    if "error" in names:
        return TestStatus.ERROR
    if "failure" in names or not _AFTER_ALL.isdisjoint(names):
        return TestStatus.FAILED
    return by_words(case.get("status", ""), case.get("result", ""))


def skipped_of(children: list[Child]) -> tuple[TestStatus, str] | None:
    """Return status and reason if the case is only skipped, else None."""
    if len(children) != 1 or children[0].name != "skipped":
        return None
    status = _skipped(children[0].attributes)
    return None if status in RED else (status, reason_of(children))


def _skipped(attributes: dict[str, str]) -> TestStatus:
    message, kind = attributes.get("message", ""), attributes.get("type", "")
    if kind == "pytest.xfail":
        return TestStatus.XFAILED
    # ctest calls a test `not run` if its command cannot be started.
    if message.startswith(("Unable to find executable", "Could not find executable", "Required Files Missing")):
        return TestStatus.ERROR
    todo = kind == "todo" or message.lower() in {"todo", "not yet implemented"}
    return TestStatus.TODO if todo else TestStatus.SKIPPED


_BY_ATTRIBUTE = {
    "notrun": TestStatus.SKIPPED,
    "disabled": TestStatus.SKIPPED,
    "skipped": TestStatus.SKIPPED,
    "ignored": TestStatus.SKIPPED,
    "suppressed": TestStatus.SKIPPED,
    "pending": TestStatus.SKIPPED,
    "fail": TestStatus.FAILED,
    "failed": TestStatus.FAILED,
    "failure": TestStatus.FAILED,
    "ko": TestStatus.FAILED,
    "error": TestStatus.ERROR,
    "broken": TestStatus.ERROR,
    "crashed": TestStatus.ERROR,
    "aborted": TestStatus.ERROR,
    "timeout": TestStatus.ERROR,
    "timedout": TestStatus.ERROR,
    "undefined": TestStatus.ERROR,
    "ambiguous": TestStatus.ERROR,
    "interrupted": TestStatus.ERROR,
    "unknown": TestStatus.ERROR,
    "inconclusive": TestStatus.SKIPPED,
    "cancelled": TestStatus.SKIPPED,
    "canceled": TestStatus.SKIPPED,
}


def by_words(status: str, result: str) -> TestStatus:
    """Return the status from attributes: GoogleTest's disabled tests, ctest's, and those of unknown tools."""
    found = [_BY_ATTRIBUTE[word.lower()] for word in (status, result) if word.lower() in _BY_ATTRIBUTE]
    return next((status for status in found if status in RED), found[0] if found else TestStatus.PASSED)


_VAGUE = {"", "failure", "failed", "error", "fail", "testcodefailure", "exception", "not specified"}
_LONGEST_VAGUE = max(map(len, _VAGUE))


def _is_vague(kind: str) -> bool:
    """Return whether a message says only that the test failed; capitals are the name of an assertion macro."""
    if len(kind) <= _LONGEST_VAGUE and kind.lower() in _VAGUE:
        return True
    return kind.isupper() or kind.startswith("test failure") or kind.endswith("see stacktrace for details")


@lru_cache(maxsize=256)
def _type(kind: str) -> str:
    return "" if _is_vague(kind) else clip(kind, 200)


def output_of(children: list[Child], name: str) -> str:
    found = [child.text[-TAIL_LIMIT:] for child in children if child.name == name]
    return strip_control_characters("\n".join(found)).strip("\n") if found else ""


def failure_of(name: str, bad: Child, children: list[Child], read: Read) -> Failure:
    message, kind, body = failure_texts(name, bad)
    if not body and len(message) < 12 and (output := output_of(children, "system-out")):
        return _from_output(output)
    return placed(read(message, kind, body), bad)


def placed(failure: Failure, bad: Child) -> Failure:
    """Add the place that attributes of the element name, if the text names none."""
    file, line = (bad.attributes.get(key, "") for key in ("file", "line"))
    if failure.file or not file:
        return failure
    return replace(failure, file=file, line=int(line) if line.isdecimal() and len(line) < 10 else 0)


def failure_texts(name: str, bad: Child) -> Texts:
    """Return message, type and text of a failure."""
    get = bad.attributes.get
    return (
        strip_control_characters(get("message", "")),
        get("type", ""),
        _headless(strip_control_characters(bad.text).strip("\n"), name),
    )


def failure(message: str, kind: str, body: str) -> Failure:
    if _is_vague(message) or message.startswith("thread '") or body.startswith("UNCAUGHT EXCEPTION:\n"):
        message = _before_stack(body) or message
    elif (head := _TITLE.match(body)) and _TITLED.match(message):
        message = dedent(_CODE.split(body[head.end() :], maxsplit=1)[0]).strip() or message
    message = _unfolded(message, body)
    if "\n" in message:
        message = _PLACE_LINE.sub("", message)
    return recover.failure(body, message=message, type=_type(kind))


# Playwright repeats location and title of the test above the message and the source.
_TITLED = re.compile(r"^\S+\.[cm]?[jt]sx?:\d+:\d+ ")
_TITLE = re.compile(r"^\s*(?:\[[^\]\n]+\] )?› [^\n]*\n")
_CODE = re.compile(r"\n\s*(?:>? *\d+ \||at |Call log:)")
_PLACE_LINE = re.compile(r"^(?:[^\s:]+:\d+|unknown file)\n")
_STACK = re.compile(r"\n\s*(?:at |❯ |#\d+ |# \./|/\S+:\d+|Stack trace:\n)")
_GO_FRAMING = re.compile(r"(?m)^\s*(?:=== (?:RUN|PAUSE|CONT|NAME)|--- FAIL:).*\n?")
# Lines that count failures say less than those that describe them.
_TELLING = re.compile(
    r"^(?!.*(?:\bassertions: \d|Failures: \d|\[   LINE   \]))"
    r"(?:\d+\) test: |.*(?:: Failure|FAILED|[Aa]ssert|[Ee]rror|ERROR: |panic|terminate called|Segmentation"
    r"|\[  ERROR   \])).*$",
    re.M,
)


def _before_stack(body: str) -> str:
    """Return what stands before the stack in the text of a failure without a message."""
    if body.startswith(("Traceback (most ", "ASSERTION FAILURE:", "UNCAUGHT EXCEPTION:")):
        return _last_word(body) or body
    body = _GO_FRAMING.sub("", body) if "=== " in body else body.removeprefix("Failure:\n")
    found = _STACK.search(body)
    return _PLACE_LINE.sub("", (body[: found.start()] if found else body).removeprefix("FAILED:\n")).strip()


_BOOST = re.compile(r"^(?:- message: |EXCEPTION STACK TRACE: -+\n)(?P<text>.+?)(?=\n-{9}|\Z)", re.S | re.M)


def _last_word(body: str) -> str:
    """Return the exception at the end of a Python traceback, or the last message in Boost's list."""
    if not body.startswith("Traceback"):
        found = _BOOST.search(body)
        return found["text"].strip() if found else ""
    # nose appends the captured output.
    rows = body.partition("\n-------------------- >> begin captured ")[0].split("\n")
    last = max((at for at, row in enumerate(rows) if row.lstrip().startswith('File "')), default=len(rows))
    return "\n".join(dropwhile(lambda row: row[:1] in ("", " ", "\t"), rows[last + 1 :])).strip()


def _unfolded(message: str, body: str) -> str:
    """Restore the line breaks that an attribute value loses, if the text repeats the message."""
    if "  " not in message or "\n" in message or "  " not in message.strip():
        return message
    words = message.split()
    found = re.search(r"\s+".join(map(re.escape, words)), body) if len(words) <= 200 else None
    return dedent(found.group()) if found else message


def _headless(body: str, name: str) -> str:
    """Remove the test's name, with which PHPUnit's text begins."""
    end = body.find("\n")
    return body[end + 1 :] if name and end + 1 and body.find(f"::{name}", 0, end) >= 0 and body[end + 1 :] else body


def _from_output(output: str) -> Failure:
    """Return the program's output as the text: ctest's failure has none."""
    telling = _TELLING.search(output)
    return recover.sanitizer(output) or recover.failure(
        output[telling.start() :] if telling else output, message=telling.group() if telling else output[-1000:].strip()
    )


_UNBUILT = {"build error", "build failed", "[build failed]", "setup failed", "[setup failed]"}


def is_build(name: str, bad: Child) -> bool:
    """Return whether a failure is one of the build, judged by its whole text: messages of browser drivers contain
    "build", too."""
    return bad.attributes.get("message", "").strip().lower() in _UNBUILT or name.strip().lower() in _UNBUILT


def broken_of(writer: str, name: str, group: str, bad: Child) -> Diagnostic | None:
    """Return the load error if the case is a file that could not be loaded: several tools list it as a case."""
    if writer == "pytest" and strip_control_characters(bad.attributes.get("message", "")) == "collection failure":
        return load_error(writers.pytest_id("", name.replace(".", "/"), "") + ".py", bad, "pytest")
    if writer == "vitest" and name == group:
        return load_error(name, bad, "vitest")
    if group == "Test suite failed to run":
        return load_error(name, bad, "jest")
    if group == "unittest.loader._FailedTest":
        return load_error(name.replace(".", "/") + ".py", bad, "unittest")
    if writer == "node" and re.search(r"\.[cm]?[jt]sx?$", name) and ("/" in name or "\\" in name):
        return load_error(name, bad, "node")
    return load_error(group or name, bad, "go") if is_build(name, bad) else None


def load_error(file: str, bad: Child, tool: str) -> Diagnostic:
    text = bad.whole()
    found = next((d for d in compiler.diagnostics(text) if d.line), None)
    known = recover.failure(text)
    return Diagnostic(
        file=file or (found.file if found else ""),
        line=found.line if found else (known.line if known.file.endswith(file.rpartition("/")[2]) else 0),
        column=found.column if found else 0,
        type=found.type if found and found.type else known.type or _type(bad.attributes.get("type", "")),
        message=found.message if found and found.type else clip(_before_stack(text.strip()), 4000),
        tool=tool,
    )


_AROUND = re.compile("failed on (setup|teardown)")


def phase_of(writer: str, name: str, failure: Failure) -> str:
    if writer == "pytest" and (found := _AROUND.match(failure.message)):
        return found.group(1)
    hook = re.search(r'"(before|after)(?: each| all)?" hook', name) if " hook" in name else None
    if hook or (writer == "jvm" and name in {"", "initializationError"}):
        return "teardown" if hook and hook.group(1) == "after" else "setup"
    return "call"


def reason_of(children: list[Child]) -> str:
    skipped = next((child for child in children if child.name == "skipped"), None)
    if skipped is None:
        return ""
    reason = strip_control_characters(skipped.attributes.get("message") or skipped.text).strip()
    return clip("" if reason == "true" else _PLACE_LINE.sub("", reason), 1000)
