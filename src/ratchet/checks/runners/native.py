"""C and C++: ctest over a build of ours or the project's, with GoogleTest's own results where a test is one."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, joined, junit, parser, read
from ratchet.core.report import RED, Failure, TestResult

_gtest_json = parser("gtest_json")

_GTEST = "[==========] Running"
_HOW = re.compile(r"(?m)^ *\d+/\d+ Test +#\d+: (\S+) \.*\**(Failed|Timeout|Not Run|Exception: \w+)")


class CTest(Usual):
    name = family = "ctest"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/CMakeLists.txt"):
            if re.search(r"(?i)\b(?:enable_testing|include\s*\(\s*CTest)\b", project.text(path)):
                root = root_of(path)
                yield Target(
                    runner=self.name,
                    command=["ctest"],
                    root=root,
                    language="c++",
                    tests=under(
                        root, "test/**", "tests/**", "**/*_test.cpp", "**/*_test.cc", "**/test_*.cpp", "**/test_*.c"
                    ),
                    sources=under(root, "**/*.c", "**/*.cc", "**/*.cpp", "**/*.h", "**/*.hpp"),
                    protected=[],
                    setup=["cmake -S . -B build", "cmake --build build"],
                    why=f"{path} enables tests",
                    strength=Strength.CONFIG,
                )

    def launch(self, target: Target, session: Session) -> list[Step]:
        build = build_folder(session)
        jobs = str(os.cpu_count() or 1)
        chosen = ["-R", "^(" + "|".join(re.escape(_ctest_name(test)) for test in session.only) + ")$"]
        output = ["--test-dir", str(build), "--output-junit", str(session.private / "ctest.xml"), "--output-on-failure"]
        env = {"GTEST_OUTPUT": f"json:{session.private / 'gtest'}{os.sep}", "GTEST_COLOR": "no"}
        return [
            Step(argv=["cmake", "-S", ".", "-B", str(build)]),
            Step(argv=["cmake", "--build", str(build), "--parallel", jobs], needs=True),
            Step(argv=[*target.command, *output, *(chosen if session.only else [])], env=env, needs=True),
        ]

    def parse(self, results: Results) -> Parsed:
        if len(results.exit_codes) < 3 and not results.stopped:
            with end_of(results) as stream:
                errors = compiler(stream).compile_errors
            return Parsed(compile_errors=errors, ended=bool(errors))
        whole = read(results.private / "ctest.xml", junit)
        files = sorted((results.private / "gtest").glob("*.json")) if (results.private / "gtest").exists() else []
        finer = joined(read(path, _gtest_json) for path in files)
        with end_of(results) as stream:
            said = dict(_HOW.findall(stream.read().decode(errors="replace")))
        whole.tests = [_explained(test, said.get(test.name, "")) for test in whole.tests]
        return _refined(whole, finer.tests)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["ctest", "--test-dir", "build", "-R", f"^{re.escape(_ctest_name(test))}$", "--output-on-failure"]


def _explained(test: TestResult, how: str) -> TestResult:
    """How a program ended is on the console only: Failed, Timeout, Exception: SegFault."""
    if test.status not in RED or not how or (test.failure and test.failure.message):
        return test
    failure = msgspec.structs.replace(
        test.failure or Failure(), type=how.partition(":")[0], message=f"ctest says: {how}"
    )
    return msgspec.structs.replace(test, failure=failure)


def _ctest_name(test: TestResult) -> str:
    return test.id.split("::")[-1]


def build_folder(session: Session) -> Path:
    """The project's own build, if it has one that fits; else one of ours outside, kept for the next time."""
    own = session.folder / "build"
    if (own / "CMakeCache.txt").exists():
        return own
    cache = Path(session.env.get("XDG_CACHE_HOME") or Path(session.env.get("HOME", "/tmp")) / ".cache")  # noqa: S108
    return cache / "ratchet" / "build" / hashlib.sha256(str(session.folder).encode()).hexdigest()[:16]


def _refined(whole: Parsed, finer: list[TestResult]) -> Parsed:
    """One GoogleTest program is one test to ctest, or its tests are ctest's too: the program knows more of both."""
    known = {test.id: test for test in finer}
    kept: list[TestResult] = []
    for test in whole.tests:
        same = known.pop(test.name, None) or known.pop(test.id, None)
        if same:
            kept.append(same)
        elif not (finer and _GTEST in f"{test.stdout}{test.failure.message if test.failure else ''}"):
            kept.append(test)
    return msgspec.structs.replace(whole, tests=[*kept, *known.values()], reported={})
