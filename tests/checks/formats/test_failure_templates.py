"""Failures that differ only in their digits are read as each by itself would be."""

from __future__ import annotations

import random
import re
from functools import cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ratchet.checks.formats.junit import verdicts
from ratchet.checks.formats.junit.document import JUnitDocument
from ratchet.checks.formats.recover.failure_templates import FailureTemplates
from ratchet.checks.formats.xml import XmlReader
from ratchet.core.report import Failure
from tests.checks.formats.golden import fixtures
from tests.checks.formats.test_recover import VALUES

Texts = tuple[str, str, str]
PYTEST = (
    "assert 5 == 41\n +  where 5 = total(17)",
    "",
    "def test_total():\n>   assert total(17) == 41\nE   assert 5 == 41\nE    +  where 5 = total(17)\n\n"
    "tests/test_orders.py:23: AssertionError",
)
JAVA = (
    "expected: <17> but was: <5>",
    "org.opentest4j.AssertionFailedError",
    "org.opentest4j.AssertionFailedError: expected: <17> but was: <5>\n"
    "\tat com.acme.Order12.call(Order12.java:31)\n\tat com.acme.Order12.again(Order12.java:47)\n"
    "\tat org.junit.Assert.fail(Assert.java:89)\n",
)
TWICE = ("boom 12", "", "Traceback:\na.py:10: in f\na.py:12: in f\na.py:13: in f\nE   ValueError: boom 12")
SANITIZER = ("", "", "==1==ERROR: AddressSanitizer: bad\n    #0 0x12 in f /a/b.c:3\n    #1 0x34 in g /a/b.c:7\n")
ADDRESS = (
    "assert 0x1f == 12",
    "",
    "self = <T object at 0x7f2b1c0d>\nE   assert 0x1f == 12\n\na.py:23: AssertionError",
)
NO_ADDRESS = ("expected: <0x> but was: <10x7>", "", "")
NIM = ("", "", "Check failed: a1 == 17\n  a1 was 12\n")


class Listening(FailureTemplates):
    def __init__(self) -> None:
        super().__init__(verdicts.failure)
        self.received: list[Texts] = []

    def read(self, message: str, kind: str, body: str) -> Failure:
        self.received.append((message, kind, body))
        return super().read(message, kind, body)


@cache
def recorded() -> list[Texts]:
    """What real runners wrote."""
    shapes = Listening()
    for path in fixtures():
        if path.parent.name == "junit":
            handler = JUnitDocument()
            handler.failures = shapes
            with path.open("rb") as stream:
                XmlReader(handler).read(stream)
    return shapes.received + [(text, "", f"{text}\n    at f (src/a.js:12:3)") for _, text, _, _ in VALUES]


def with_other_digits(texts: Texts, seed: int, *, alike: bool) -> Texts:
    """Others at random; the same for the same if `alike`, so that what is repeated stays repeated."""
    chance = random.Random(seed)
    known: dict[str, str] = {}

    def other(found: re.Match[str]) -> str:
        signs = "0123456789abcdef" if found.group(1) else "0123456789"
        digits = (found.group(1) or "") + "".join(chance.choice(signs) for _ in found.group(2))
        return known.setdefault(found.group(), digits) if alike else digits

    message, kind, body = (re.sub("(0x)?((?<=0x)[0-9a-f]+|[0-9]+)", other, text) for text in texts)
    return message, kind, body


@given(st.integers(0, 10_000), st.integers(0, 1 << 30), st.lists(st.booleans(), min_size=33, max_size=40))
@example(0, 1, [True] * 40)
@example(3, 0, [False] * 33)
@settings(max_examples=150)
def test_each_is_read_as_it_would_be_alone(which: int, seed: int, alike: list[bool]) -> None:
    texts = [PYTEST, JAVA, TWICE, SANITIZER, ADDRESS, NO_ADDRESS, NIM, *recorded()]
    output = texts[which % len(texts)]
    reported = [with_other_digits(output, seed + number, alike=same) for number, same in enumerate(alike)]
    alone = [verdicts.failure(*other) for other in reported]
    one_by_one, together = FailureTemplates(verdicts.failure), FailureTemplates(verdicts.failure)
    assert [one_by_one.read(*other) for other in reported] == alone
    assert together.read_all(reported) == alone
    assert together.read_all(reported[::-1]) == alone[::-1]


def test_what_is_not_alike_may_come_together() -> None:
    shapes = FailureTemplates(verdicts.failure)
    reported = [
        with_other_digits(texts, seed, alike=True) for seed in range(40) for texts in (PYTEST, JAVA, TWICE, NIM)
    ]
    assert shapes.read_all(reported) == [verdicts.failure(*texts) for texts in reported]
    assert shapes.read_all([]) == []


@pytest.mark.parametrize("texts", [PYTEST, JAVA, ADDRESS, *((text, "", text) for _, text, _, _ in VALUES)])
def test_what_comes_often_is_no_longer_read(texts: Texts) -> None:
    times = 0

    def read(message: str, kind: str, body: str) -> Failure:
        nonlocal times
        times += 1
        return verdicts.failure(message, kind, body)

    shapes = FailureTemplates(read)
    for seed in range(80):
        shapes.read(*with_other_digits(texts, seed, alike=True))
    assert times <= 38


def test_a_frame_that_comes_twice_is_one_though_it_was_two_before() -> None:
    shapes = FailureTemplates(verdicts.failure)
    for seed in range(40):
        shapes.read(*with_other_digits(TWICE, seed, alike=False))
    recursive = TWICE[2].replace("a.py:12", "a.py:10")
    assert len(shapes.read("boom 99", "", recursive).frames) == 2


def test_a_message_that_the_body_does_not_repeat_stays_separate() -> None:
    shapes = FailureTemplates(verdicts.failure)
    body = "E   assert 5 == 41\n\na.py:23: AssertionError"
    for number in range(10, 90):
        shapes.read(f"assert 5 == {number}", "", body.replace("41", str(number)))
    assert shapes.read("assert 5 == 55", "", body) == verdicts.failure("assert 5 == 55", "", body)


def test_a_long_text_is_always_read() -> None:
    shapes = FailureTemplates(verdicts.failure)
    source = "    call()\n" * 1000
    for number in range(10, 90):
        output = (f"no {number}", "Error", f"Error: no {number}\n{source}a.py:{7 + number % 2}: Error")
        assert shapes.read(*output) == verdicts.failure(*output)
    assert not shapes._known


def test_a_message_that_lost_its_line_ends_gets_those_of_the_body() -> None:
    shapes = FailureTemplates(verdicts.failure)
    for number in range(10, 90):
        output = (f"no  {number}", "Error", f"no\n  {number}" if number > 60 else "no\n  17")
        assert shapes.read(*output) == verdicts.failure(*output)


def test_a_digit_is_never_taken_for_one_that_is_always_there() -> None:
    shapes = FailureTemplates(verdicts.failure)
    for number in range(50):
        # The name of the digit behind so many others is 111.
        shapes.read(f"{number:0847} is not what was expected: <1> but was: <2>", "", "")
    assert shapes.read(f"{7:0847} is not what was expected: <8> but was: <2>", "", "").expected == "8"


def test_a_document_of_many_shapes_is_no_longer_asked_for_them() -> None:
    shapes = FailureTemplates(verdicts.failure)
    for number in range(1000):
        shapes.read("no " + "x" * number, "", "")
    for number in range(10, 90):
        assert shapes.read(f"no {number}", "", "").message == f"no {number}"
    assert len(shapes._known) <= 256
