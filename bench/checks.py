"""Checks: what `ratchet test` costs over the bare runner on 500 tests, and reading 50 MB of JUnit XML against expat."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.parsers import expat

from bench import Row, medians
from ratchet.checks.formats import junit

TESTS, FILES, ROUNDS = 500, 20, 7
XML_BYTES = 50 << 20
# About two milliseconds of work a test: more than nothing, less than any real suite.
_BODY = "    total = sum(i * i for i in range(20_000))\n    assert total > {n}\n"


def main() -> list[Row]:
    return [*_overhead(), *_junit()]


def _overhead() -> list[Row]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "suite"
        folder.mkdir()
        for file in range(FILES):
            tests = [f"def test_{n}():\n{_BODY.format(n=n)}" for n in range(TESTS // FILES)]
            (folder / f"test_{file}.py").write_text("\n\n".join(tests))
        env = os.environ | {"XDG_STATE_HOME": f"{place}/state"}

        def bare() -> None:
            _run([sys.executable, "-m", "pytest", "-q"], folder, env)

        def ours() -> None:
            _run([sys.executable, "-m", "ratchet", "test"], folder, env)

        bare()  # byte code and disk caches are warm for both
        times = medians(ROUNDS, bare=bare, ours=ours)
    return [
        (f"pytest, {TESTS} tests", "s", times["bare"]),
        (f"ratchet test, {TESTS} tests", "s", times["ours"]),
        ("ratchet test over pytest", "times", times["ours"] / times["bare"]),
    ]


def _run(argv: list[str], folder: Path, env: dict[str, str]) -> None:
    subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True)


def _junit() -> list[Row]:
    case = '<testcase classname="a.b.C" name="test {n}" time="0.01"{end}'
    failing = (
        '><failure type="E" message="m {n}">expected: 1\n  actual: 2\n  at a.b.C (C.java:{n})</failure></testcase>'
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "junit.xml"
        with path.open("w") as file:
            file.write('<testsuites><testsuite name="s">')
            n = 0
            while file.tell() < XML_BYTES:
                for _ in range(1000):
                    n += 1
                    end = failing.format(n=n) if n % 20 == 0 else "/>"
                    file.write(case.format(n=n, end=end))
            file.write("</testsuite></testsuites>")

        def floor() -> None:
            parser = expat.ParserCreate()
            parser.StartElementHandler = lambda _name, _attributes: None
            parser.EndElementHandler = lambda _name: None
            parser.CharacterDataHandler = lambda _text: None
            with path.open("rb") as stream:
                parser.ParseFile(stream)

        def ours() -> None:
            with path.open("rb") as stream:
                junit.parse(stream)

        times = medians(3, floor=floor, ours=ours)
    return [
        (f"expat reads 50 MB of JUnit XML, {n:,} cases", "s", times["floor"]),
        ("ours reads them into a report", "s", times["ours"]),
        ("ours over expat", "times", times["ours"] / times["floor"]),
    ]
