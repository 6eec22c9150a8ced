"""Parses inline tests into cases: blocks in Rust, Zig, D and Vitest, and prompts in documentation examples."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.core.cheats import c_family
from ratchet.core.cheats.assertions import assertions, of_condition
from ratchet.core.cheats.inline_tests import Region, regions, split, suffix
from ratchet.core.cheats.masked_source import mask, tight
from ratchet.core.cheats.test_cases import Assertion, AssertionStrength, TestCase

_PROMPT = re.compile(r"\s*(?:>>>|iex(?:\(\d+\))?>) ?(?P<input>.*)")
_MORE = re.compile(r"\s*\.\.\.(?:\(\d+\)>)? ?(?P<input>.*)")


def cases(path: str, text: str) -> list[TestCase]:
    """Return the cases in `text`, which is the whole file."""
    tests = split(path, text)[1]
    if tests is None:
        return []
    found = c_family.cases(path, tests) if suffix(path) not in (".py", ".ex", ".ml") else []
    lines = text.split("\n")
    for region in regions(path, text):
        if region.example or suffix(path) == ".ml":
            found.append(_case(path, region, lines[region.first : region.last]))
    return found


def _case(path: str, region: Region, lines: list[str]) -> TestCase:
    body = "\n".join(lines)
    asserts = list(_asserts(path, region, lines))
    return TestCase(
        file=path,
        name=f"the example of {region.key}" if region.example else region.key,
        example=region.example,
        line=region.first + 1,
        last_line=region.last,
        asserts=asserts,
        disabled="+SKIP added" if _all_skipped(lines) else "",
        words=frozenset(re.findall(r"""-?\b\d+(?:\.\d+)?\b|"[^"\n]*"|'[^'\n]*'""", body)),
        names=frozenset(re.findall(r"[A-Za-z_]\w*", body)),
    )


def _all_skipped(lines: list[str]) -> bool:
    prompts = [line for line in lines if ">>>" in line]
    return bool(prompts) and all("doctest:+SKIP" in tight(line) for line in prompts)


def _asserts(path: str, region: Region, lines: list[str]) -> Iterator[Assertion]:
    first = region.first + 1
    if suffix(path) == ".ml":
        whole = " ".join(lines)
        condition = whole.partition("=")[2]
        yield (
            Assertion(line=first, subject=tight(condition), strength=AssertionStrength.EXACTLY)
            if "%expect" in whole
            else of_condition(condition.replace("=", "==").replace("====", "=="))
        )
    elif suffix(path) == ".rs":
        code = "\n".join(re.sub(r"^\s*//[/!] ?", "", line) for line in lines if "```" not in line)
        yield from assertions(code, mask(code, path), first)
    else:
        yield from _prompted(lines, first)


def _prompted(lines: list[str], first: int) -> Iterator[Assertion]:
    """Return assertions from prompts: the output after a prompt is the expected value."""
    at = 0
    while at < len(lines):
        prompt = _PROMPT.match(lines[at])
        start, at = at, at + 1
        if not prompt:
            continue
        asked, answer = prompt["input"], []
        while at < len(lines) and (more := _MORE.match(lines[at])):
            asked, at = asked + more["input"], at + 1
        while at < len(lines) and not _PROMPT.match(lines[at]):
            answer.append(lines[at].strip())
            at += 1
        asked, _, options = asked.partition("# doctest:")
        if answer:
            made = Assertion(line=0, subject=tight(asked), strength=AssertionStrength.EXACTLY, literal=True)
            made = msgspec.structs.replace(made, line=first + start, expected="\n".join(answer))
            if answer in (["true"], ["True"]) and _TYPE_OF.match(asked):
                made = msgspec.structs.replace(made, strength=AssertionStrength.SOMETHING)
            yield msgspec.structs.replace(made, strength=AssertionStrength.NOTHING) if "SKIP" in options else made


_TYPE_OF = re.compile(r"\s*(?:is_\w+|isinstance|callable|hasattr|bool)\(")
