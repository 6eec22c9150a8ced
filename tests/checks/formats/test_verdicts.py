"""Without a verdict there is no pass: no failure turns green when its status is renamed, removed or emptied."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ratchet.checks.formats import Parsed, compiler
from ratchet.core.report import RED, TestStatus
from tests.checks.formats.golden import fixtures, load, named

_KEYS = "status|state|result|outcome|testResult|conclusion|verdict"
_IN_XML = re.compile(rf'\s(?P<key>{_KEYS}|success|executed)="(?P<word>[^"]*)"')
_FAILS = re.compile(r"(?i)fail|err|broken|^ko$|crash|abort|timed|undefined|ambiguous|^false$")


def _xml(text: str, how: str) -> str:
    def mutated(found: re.Match[str]) -> str:
        if not _FAILS.search(found["word"]):
            return found[0]
        words = {"renamed": "zzz", "emptied": "", "removed": None}
        word = words[how]
        return "" if word is None else f' {found["key"]}="{word}"'

    return _IN_XML.sub(mutated, text)


def _json(text: str, how: str) -> str:
    def mutated(found: re.Match[str]) -> str:
        if not _FAILS.search(found["word"]):
            return found[0]
        return f'"{found["key"]}"{found["gap"]}"{"zzz" if how == "renamed" else ""}"'

    if how == "removed":
        return "\n".join(_without(line) for line in ([text] if _loads(text) is not None else text.splitlines()))
    return re.sub(rf'"(?P<key>{_KEYS})"(?P<gap>\s*:\s*)"(?P<word>[^"]*)"', mutated, text)


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _without(text: str) -> str:
    def bare(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: bare(value) for key, value in node.items() if not _is_bad(key, value)}
        return [bare(item) for item in node] if isinstance(node, list) else node

    def _is_bad(key: str, value: Any) -> bool:
        return bool(re.fullmatch(_KEYS, key)) and isinstance(value, str) and bool(_FAILS.search(value))

    found = _loads(text)
    return text if found is None else json.dumps(bare(found))


MUTATIONS: dict[str, Callable[[str, str], str]] = {"<": _xml, "{": _json, "[": _json}


def _parsed(path: Path, content: bytes) -> Parsed:
    return load(path.parent.name).parse(io.BytesIO(content))


@pytest.mark.parametrize("how", ["renamed", "removed", "emptied"])
@pytest.mark.parametrize("path", fixtures(), ids=named)
def test_a_failure_without_its_status_does_not_turn_green(path: Path, how: str) -> None:
    content = path.read_bytes()
    mutate = MUTATIONS.get(content.lstrip()[:1].decode("latin-1"))
    if mutate is None or b"\0" in content:
        pytest.skip("a text, which has no statuses apart from its lines")
    changed = mutate(content.decode(errors="surrogateescape"), how).encode(errors="surrogateescape")
    red = {test.id for test in _parsed(path, content).tests if test.status in RED}
    if changed == content or not red:
        pytest.skip("it has no failure with a status of its own")
    after = {test.id: test.status for test in _parsed(path, changed).tests}
    assert [name for name in red if after.get(name) is TestStatus.PASSED] == []


EXPLORED = """<?xml version="1.0"?>
<test-run id="0" name="a.dll" fullname="a.dll" testcasecount="1">
  <test-suite type="TestFixture" name="T" fullname="A.T">
    <test-case id="1" name="adds" fullname="A.T.adds" methodname="adds" classname="A.T" runstate="Runnable"/>
  </test-suite>
</test-run>
"""


def test_tests_that_are_only_listed_have_not_passed() -> None:
    [test] = load("dotnet_xml").parse(io.BytesIO(EXPLORED.encode())).tests
    assert test.status is TestStatus.SKIPPED


@pytest.mark.parametrize("word", ["zzz", "", None])
def test_a_scenario_with_an_unknown_status_has_not_passed(word: str | None) -> None:
    good: dict[str, Any] = {"keyword": "Given ", "name": "a", "result": {"status": "passed"}}
    other: dict[str, Any] = {"keyword": "Then ", "name": "b", "result": {} if word is None else {"status": word}}
    feature = {
        "uri": "a.feature",
        "name": "A",
        "elements": [{"name": "s", "line": 3, "type": "scenario", "steps": [good, other]}],
    }
    [test] = load("cucumber_json").parse(io.BytesIO(json.dumps([feature]).encode())).tests
    assert test.status in RED


@pytest.mark.parametrize("numbers", [(1, 3, 2), (1, 1, 2), (1, 2, 2), (2, 1, 3)])
def test_tap_with_numbers_out_of_sequence_is_a_failed_run(numbers: tuple[int, ...]) -> None:
    lines = [f"ok {number} - t{at}" for at, number in enumerate(numbers)]
    parsed = load("tap").parse(io.BytesIO("\n".join(["1..3", *lines, ""]).encode()))
    assert parsed.notes and not parsed.ended
    right = load("tap").parse(io.BytesIO(b"1..3\nok 1\nok 2 - b\nok - c\n"))
    assert right.ended and not right.notes


def test_a_parametrised_name_with_a_dash_is_read_whole_in_a_log() -> None:
    log = (
        "=========================== short test summary info ============================\n"
        "FAILED tests/test_a.py::test_a[x - y] - assert 1 == 2\n"
        "FAILED tests/test_a.py::test_b - assert [1] == [2]\n"
        "========================= 2 failed in 0.03s =========================\n"
    )
    parsed = load("console").parse(io.BytesIO(log.encode()))
    assert [test.id for test in parsed.tests] == ["tests/test_a.py::test_a[x - y]", "tests/test_a.py::test_b"]


def test_exunits_file_has_its_line_in_it() -> None:
    document = (
        '<testsuites><testsuite name="ATest" tests="2" failures="1"><testcase classname="Elixir.ATest" name="test a" '
        'file="test/a_test.exs:7" time="0.1"/><testcase classname="Elixir.ATest" name="test b" '
        'file="test/a_test.exs:9"><failure message="error: assert"/></testcase></testsuite></testsuites>'
    )
    tests = load("junit").parse(io.BytesIO(document.encode())).tests
    assert [(test.file, test.line) for test in tests] == [("test/a_test.exs", 7), ("test/a_test.exs", 9)]


@pytest.mark.parametrize(
    ("text", "file", "line"),
    [
        ("  src/a.c:3:5: error: expected ';'\n", "src/a.c", 3),
        ('kernel.cu(12): error: identifier "x" is undefined\n', "kernel.cu", 12),
        ("a.f90:3:10:\n\n    3 |   x = 'a'\n      |          1\nError: Cannot convert\n", "a.f90", 3),
    ],
)
def test_errors_of_more_compilers_are_placed(text: str, file: str, line: int) -> None:
    [found] = compiler.diagnostics(text)
    assert (found.file, found.line) == (file, line)


LISTED = {
    "gtest_json": '{"tests": 1, "name": "AllTests", "testsuites": [{"name": "Calc", "testsuite": [{"name": "Adds"}]}]}',
    "junit": '<testsuites tests="1" name="AllTests"><testsuite name="Calc" tests="1">'
    '<testcase name="Adds" file="a.cc"/></testsuite></testsuites>',
    "doctest_xml": '<doctest binary="t"><TestCase name="adds" filename="a.cpp" line="3"/>'
    '<OverallResultsTestCases unskipped="1"/></doctest>',
}


@pytest.mark.parametrize("name", LISTED)
def test_tests_that_a_cpp_framework_only_lists_have_not_passed(name: str) -> None:
    [test] = load(name).parse(io.BytesIO(LISTED[name].encode())).tests
    assert test.status is TestStatus.SKIPPED


@pytest.mark.parametrize("word", ["zzz", ""])
@pytest.mark.parametrize("key", ["status", "result"])
def test_a_google_test_with_a_word_nobody_knows_has_not_passed(key: str, word: str) -> None:
    row = {"name": "Adds", "status": "RUN", "result": "COMPLETED", key: word}
    document = {"tests": 1, "testsuites": [{"name": "Calc", "testsuite": [row]}]}
    [test] = load("gtest_json").parse(io.BytesIO(json.dumps(document).encode())).tests
    assert test.status in RED


@pytest.mark.parametrize("word", ["undefined", "Ambiguous", "inconclusive", "cancelled"])
def test_a_junit_case_whose_attribute_says_that_it_did_not_pass_has_not_passed(word: str) -> None:
    document = f'<testsuite tests="1"><testcase name="adds" classname="A" status="{word}"/></testsuite>'
    [test] = load("junit").parse(io.BytesIO(document.encode())).tests
    assert test.status is not TestStatus.PASSED


@pytest.mark.parametrize("more", ["", "<system-out>x</system-out>"])
def test_the_place_in_the_attributes_of_a_junit_failure_is_kept(more: str) -> None:
    failure = '<failure file="src/a.cpp" line="12" message="bad">bad</failure>'
    document = f'<testsuite tests="1"><testcase name="adds" classname="A">{failure}{more}</testcase></testsuite>'
    [test] = load("junit").parse(io.BytesIO(document.encode())).tests
    assert test.failure and (test.failure.file, test.failure.line) == ("src/a.cpp", 12)
