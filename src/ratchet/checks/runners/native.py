"""C and C++: ctest and meson over a build of ours or the project's, with GoogleTest's own results where it has some."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, compiler, end_of, joined, junit, parser, read
from ratchet.core.report import RED, Failure, TestResult

_gtest_json = parser("gtest_json")

_SOURCE = "ratchet-source"  # in a build of ours: the folder it is of
_GTEST = "[==========] Running"
_HOW = re.compile(r"(?m)^ *\d+/\d+ Test +#\d+: (\S+) \.*\**(Failed|Timeout|Not Run|Exception: \w+)")


_ENABLED = re.compile(
    r"(?i)\b(?:enable_testing|add_test|(?:gtest|catch|doctest)_(?:discover|add)_tests?)\s*\(|include\s*\(\s*CTest\b"
)
_TESTS = ("test/**", "tests/**", "**/*_test.cpp", "**/*_test.cc", "**/test_*.cpp", "**/test_*.c")
_SOURCES = ("**/*.c", "**/*.cc", "**/*.cpp", "**/*.h", "**/*.hpp")


class _Native(Usual):
    """A build system: the topmost file of a tree is the project, and any of them may name tests."""

    family = "native"
    covers_below = True
    manifest = ""
    project = re.compile("")
    marker = re.compile("")
    setup: tuple[str, ...] = ()
    strength = Strength.CONFIG

    def detect(self, project: Project) -> Iterator[Target]:
        tops: list[str] = []
        for path in project.named(f"**/{self.manifest}"):
            root = root_of(path)
            if any(top in (".", root) or root.startswith(f"{top}/") for top in tops):
                continue  # a part of the project above
            if not self.project.search(project.text(path)):
                continue
            tops.append(root)
            if said := self._said(project, root):
                yield self.target(root, f"{said} has tests")

    def _said(self, project: Project, root: str) -> str:
        below = [path for path in project.named(f"**/{self.manifest}", "**/*.cmake") if path in project.inside(root)]
        return next((path for path in below if self.marker.search(project.text(path))), "")

    def target(self, root: str, why: str) -> Target:
        return Target(
            runner=self.name,
            command=[self.programs[0]] if self.name == "ctest" else [self.programs[0], "test"],
            root=root,
            language="c++",
            tests=under(root, *_TESTS),
            sources=under(root, *_SOURCES),
            protected=[],
            setup=list(self.setup),
            why=why,
            strength=self.strength,
        )

    def unbuilt(self, results: Results) -> Parsed:
        """What the compiler said of a build that failed."""
        with end_of(results) as stream:
            errors = compiler(stream).compile_errors
        return Parsed(compile_errors=errors, ended=bool(errors))


class CTest(_Native):
    name = "ctest"
    programs = ("ctest",)
    manifest = "CMakeLists.txt"
    project = re.compile(r"(?im)^\s*project\s*\(|enable_testing")
    marker = _ENABLED
    setup = ("cmake -S . -B build", "cmake --build build")

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
            return self.unbuilt(results)
        whole = read(results.private / "ctest.xml", junit)
        files = sorted((results.private / "gtest").glob("*.json")) if (results.private / "gtest").exists() else []
        finer = joined(read(path, _gtest_json) for path in files)
        with end_of(results) as stream:
            said = dict(_HOW.findall(stream.read().decode(errors="replace")))
        whole.tests = [_explained(test, said.get(test.name, "")) for test in whole.tests]
        return _refined(whole, finer.tests)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["ctest", "--test-dir", "build", "-R", f"^{re.escape(_ctest_name(test))}$", "--output-on-failure"]


class Meson(_Native):
    """By the JUnit file that `meson test` leaves beside its log."""

    name = "meson"
    programs = ("meson",)
    manifest = "meson.build"
    project = re.compile(r"(?m)^\s*project\s*\(")
    marker = re.compile(r"(?m)^\s*test\s*\(")
    setup = ("meson setup build",)
    strength = Strength.SCRIPT  # where there is CMake too, it is tried first

    def launch(self, target: Target, session: Session) -> list[Step]:
        own = session.folder / "build"
        build = own if (own / "meson-info").is_dir() else build_folder(session)
        (session.private / "build").write_text(str(build))
        known = (build / "meson-info").is_dir()
        # Left by the last run, it would be taken for this one's if meson writes none.
        (build / "meson-logs" / "testlog.junit.xml").unlink(missing_ok=True)
        return [
            Step(argv=["meson", "setup", *(["--reconfigure"] if known else []), str(build)]),
            Step(argv=["meson", "compile", "-C", str(build)], needs=True),
            Step(argv=[*target.command, "-C", str(build), *map(_meson_name, session.only)], needs=True),
        ]

    def parse(self, results: Results) -> Parsed:
        if len(results.exit_codes) < 3 and not results.stopped:
            return self.unbuilt(results)
        with end_of(results) as stream:
            if stream.read().rstrip().endswith((b"No tests defined.", b"No suitable tests defined.")):
                return Parsed(ended=True)
        build = Path((results.private / "build").read_text())
        return read(build / "meson-logs" / "testlog.junit.xml", junit)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return ["meson", "test", "-C", "build", _meson_name(test)]


def _explained(test: TestResult, how: str) -> TestResult:
    """How a program ended is on the console only: Failed, Timeout, Exception: SegFault."""
    if test.status not in RED or not how or (test.failure and test.failure.message):
        return test
    failure = msgspec.structs.replace(
        test.failure or Failure(), type=how.partition(":")[0], message=f"ctest says: {how}"
    )
    return msgspec.structs.replace(test, failure=failure)


def _meson_name(test: TestResult) -> str:
    """Without the project's name and the suite's, which stand before the first dot."""
    return test.name or test.id.partition(".")[2] or test.id


def _ctest_name(test: TestResult) -> str:
    return test.id.split("::")[-1]


def build_folder(session: Session) -> Path:
    """The project's own build, if it has one that fits; else one of ours outside, kept for the next time."""
    own = session.folder / "build"
    if (own / "CMakeCache.txt").exists():
        return own
    cache = Path(session.env.get("XDG_CACHE_HOME") or Path(session.env.get("HOME", "/tmp")) / ".cache")  # noqa: S108
    builds = cache / "ratchet" / "build"
    _forget_the_gone(builds)
    build = builds / hashlib.sha256(str(session.folder).encode()).hexdigest()[:16]
    build.mkdir(parents=True, exist_ok=True)
    (build / _SOURCE).write_text(str(session.folder))
    return build


def _forget_the_gone(builds: Path) -> None:
    """Workspaces come and go, and each had a build of its own."""
    for marker in builds.glob(f"*/{_SOURCE}"):
        if not Path(marker.read_text()).is_dir():
            shutil.rmtree(marker.parent, ignore_errors=True)


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
