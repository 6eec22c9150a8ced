"""No input makes a parser crash, hang or lie about its end."""

# Words to build nonsense from, on one line.

from __future__ import annotations

import io
import random
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ratchet.checks.formats import Parsed
from tests.checks.formats.golden import FIXTURES, fixtures, load, named, parsed

FORMATS = sorted(path.name for path in FIXTURES.iterdir())
DOCUMENTS = [path for path in fixtures() if path.suffix in {".xml", ".trx", ".json"} and path.name != "truncated.xml"]
WORDS = [
    word.encode("latin-1")
    for word in [
        "<testsuite>",
        "<testcase name='a'>",
        "</testcase>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "&amp;",
        "&#x1b;",
        "&#55296;",
        '"',
        "'",
        "<",
        ">",
        "{",
        "}",
        "[",
        "]",
        "\\ud800",
        '{"Action":"run"',
        '"Test":1e999',
        "NaN",
        "\n",
        "\r",
        "\x1b[31m",
        "ÿþ",
        "\x00",
        "ok 1 - ",
        "not ok 2",
        "1..99999999999",
        "    ",
        "  ---\n",
        "  ...\n",
        "##teamcity[testStarted name='",
        "test a ... ",
        "expected ",
        "= got want ",
    ]
]


def read(name: str, data: bytes) -> Parsed:
    began = time.process_time()
    result = load(name).parse(io.BytesIO(data))
    assert time.process_time() - began < 5
    again = msgspec.json.decode(msgspec.json.encode(result), type=Parsed)
    assert [test.id for test in again.tests] == [test.id for test in result.tests]
    return result


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=60)
@given(data=st.one_of(st.binary(max_size=300), st.lists(st.sampled_from(WORDS), max_size=40).map(b"".join)))
def test_random_bytes_are_survived(name: str, data: bytes) -> None:
    read(name, data)


@pytest.mark.parametrize("path", fixtures(), ids=named)
def test_a_cut_or_mutated_output_is_survived(path: Path) -> None:
    source, chance = path.read_bytes(), random.Random(path.name)
    for _ in range(30):
        read(path.parent.name, source[: chance.randrange(len(source))])
        read(path.parent.name, _mutated(source, chance))


@pytest.mark.parametrize("path", fixtures(), ids=named)
def test_an_output_is_survived_by_every_other_parser(path: Path) -> None:
    source = path.read_bytes()
    for name in FORMATS:
        read(name, source)


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_a_document_that_was_cut_has_not_ended_and_invents_no_test(path: Path) -> None:
    source, chance = path.read_bytes().rstrip(), random.Random(path.name)
    whole = {test.id for test in parsed(path).tests}
    for _ in range(12):
        cut = read(path.parent.name, source[: chance.randrange(len(source) - 8)])
        assert not cut.ended
        assert len(cut.tests) <= len(whole)


def _mutated(source: bytes, chance: random.Random) -> bytes:
    data = bytearray(source)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at : at + chance.randrange(40)]
            case 2:
                data[at:at] = chance.choice(WORDS)
            case _:
                data[at:at] = data[at : at + chance.randrange(200)]
        data = data or bytearray(b"x")
    return bytes(data)


BOMB = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "ha">'
    + b"".join(b'<!ENTITY %c "%s">' % (i, b"&%c;" % (i - 1) * 10) for i in range(ord("b"), ord("k")))
    + b']><testsuite name="s" tests="1"><testcase name="t"><failure message="&j;">&j;</failure></testcase></testsuite>'
)
EXTERNAL = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    b'<testsuite name="s" tests="1"><testcase name="t"><failure message="m">&e;</failure></testcase></testsuite>'
)


@pytest.mark.parametrize("data", [BOMB, EXTERNAL], ids=["bomb", "external"])
@pytest.mark.parametrize("name", ["junit", "trx", "catch2_xml", "doctest_xml"])
def test_entities_are_refused(name: str, data: bytes) -> None:
    result = read(name, data)
    assert result.partial
    assert "root:" not in str(result.tests) and len(str(result.tests)) < 2000


def test_a_refused_document_still_gives_its_tests_and_a_note() -> None:
    result = read("junit", EXTERNAL)
    assert [test.id for test in result.tests] == ["t"]
    assert result.notes == ["the document declares entities, which are not read"]


@pytest.mark.parametrize("opening", [b"<a>", b"<testsuite>", b"<![CDATA[", b"<!--", b"<a b='", b"&#", b"[", b'{"a":'])
@pytest.mark.parametrize("name", ["junit", "trx", "jest_json", "playwright_json", "tap"])
def test_deep_nesting_and_endless_openings_are_survived(name: str, opening: bytes) -> None:
    read(name, opening * 60_000)


@pytest.mark.parametrize("row", ["= want ", "expected ", "at a:1:", "got 5 ", "assert x == ", "  left: ", "a.b/"])
def test_a_hostile_message_does_not_stall_the_search_for_values(row: str) -> None:
    message = (row * 20_000).replace("&", "")
    document = f"<testsuite><testcase name='t'><failure>{message}</failure></testcase></testsuite>"
    assert read("junit", document.encode()).tests[0].failure
