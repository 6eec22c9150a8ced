"""C and C++: ctest and meson over a build of ours or the project's, with GoogleTest's own results where it has some."""

from __future__ import annotations

import hashlib
import html
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import lines
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import (
    Usual,
    compiler,
    end_of,
    inside,
    joined,
    junit,
    make_check,
    meson_log,
    parser,
    read,
    read_log,
    switches,
    unskipped,
)
from ratchet.core.report import RED, Failure, TestResult, TestStatus

_gtest_json = parser("gtest_json")
_automake = parser("automake")

_PASSED_BYTES = "300000"  # of the output of those that pass, as much as of those that fail
_SOURCE = "ratchet-source"  # in a build of ours: the folder it is of
_RAN = re.compile(r"(?m)\[ RUN      \] (\S+\.\S+?)$")  # GoogleTest's; cmocka's looks alike, and has no dot
_CASE = re.compile(r'<testcase name="([^"]*)"')
_HOW = re.compile(
    r"(?m)^ *\d+/\d+ Test +#\d+: (.+?) \.*\**(Failed|Timeout|Not Run|Exception: \w+|Subprocess (?:aborted|killed))"
)


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
                yield self.target(root, f"{said} has tests", self.switched(project, root))

    def _said(self, project: Project, root: str) -> str:
        below = [path for path in project.named(f"**/{self.manifest}", "**/*.cmake") if path in project.inside(root)]
        return next((path for path in below if self.marker.search(project.text(path))), "")

    def switched(self, project: Project, root: str) -> list[str]:
        """What its set-up has to be told, for there to be tests."""
        return []

    def target(self, root: str, why: str, options: list[str]) -> Target:
        return Target(
            runner=self.name,
            command=[self.programs[0]] if self.name == "ctest" else [self.programs[0], "test"],
            root=root,
            language="c++",
            tests=under(root, *_TESTS),
            sources=under(root, *_SOURCES),
            protected=[],
            setup=[" ".join([self.setup[0], *options]), *self.setup[1:]],
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
    switched = staticmethod(switches.of_cmake)
    setup = ("cmake -S . -B build", "cmake --build build")

    def launch(self, target: Target, session: Session) -> list[Step]:
        build, project = build_folder(session), Project(session.folder)
        ours = session.folder not in build.parents
        jobs = str(os.cpu_count() or 1)
        output = ["--test-dir", str(build), "--output-junit", str(session.private / "ctest.xml"), "--output-on-failure"]
        output += ["--test-output-size-passed", _PASSED_BYTES]
        env = {"GTEST_OUTPUT": f"json:{session.private / 'gtest'}{os.sep}", "GTEST_COLOR": "no"}
        env |= {"BOOST_TEST_COLOR_OUTPUT": "no"} | _filtered(session.only)
        chosen = [_ctest_name(test) if _is_googles(test) else test.id for test in session.only]
        return [
            Step(argv=["cmake", "-S", ".", "-B", str(build), *(switches.of_cmake(project) if ours else [])]),
            Step(argv=["cmake", "--build", str(build), "--parallel", jobs], needs=True),
            Step(
                argv=inside.started(session.private, "ctest", [*target.command, *output], chosen), env=env, needs=True
            ),
        ]

    def parse(self, results: Results) -> Parsed:
        if len(results.exit_codes) < 3 and not results.stopped:
            return self.unbuilt(results)
        whole = read(results.private / "ctest.xml", junit)
        with end_of(results) as stream:
            how = dict(_HOW.findall(stream.read().decode(errors="replace")))
        whole.tests = [_explained(test, how.get(test.name, "")) for test in whole.tests]
        known = inside.programs(results.private)
        ends, ran = _outputs(results.private / "ctest.xml", how)
        whole = inside.refined(whole, {name: each for name, each in known.items() if each.library != "gtest"}, ends)
        files = [*(results.private / "gtest").glob("*.json"), *(results.private / "inside").glob("*.json")]
        finer = joined(read(path, _gtest_json) for path in sorted(files))
        return _refined(whole, finer.tests, ran if files else {})

    asked = staticmethod(unskipped)

    def again(self, target: Target, test: TestResult) -> list[str]:
        """With a build of the project's own, as nobody is to know where ours is."""
        one = ["ctest", "--test-dir", "build", "-R", f"^{re.escape(_ctest_name(test))}$", "--output-on-failure"]
        inner = [f"{name}={value}" for name, value in (_filtered([test]) | inside.filters(test)).items()]
        words = [*(["env", *inner] if inner else []), *one]
        return ["sh", "-c", " && ".join([*(target.setup or self.setup), shlex.join(words)])]


class Meson(_Native):
    """By the JUnit file that `meson test` leaves beside its log."""

    name = "meson"
    programs = ("meson",)
    manifest = "meson.build"
    project = re.compile(r"(?m)^\s*project\s*\(")
    marker = re.compile(r"(?m)^\s*test\s*\(")
    switched = staticmethod(switches.of_meson)
    setup = ("meson setup build",)
    strength = Strength.SCRIPT  # where there is CMake too, it is tried first

    def launch(self, target: Target, session: Session) -> list[Step]:
        own = session.folder / "build"
        build = own if (own / "meson-info").is_dir() else build_folder(session)
        (session.private / "build").write_text(str(build))
        known = (build / "meson-info").is_dir()
        options = [] if build == own else switches.of_meson(Project(session.folder))
        chosen = [_meson_name(test) + _meson_inner(test) for test in session.only]
        # Left by the last run, it would be taken for this one's if meson writes none.
        meson_log.forget(build)
        return [
            Step(argv=["meson", "setup", *(["--reconfigure"] if known else []), *options, str(build)]),
            Step(argv=["meson", "compile", "-C", str(build)], needs=True),
            Step(
                argv=inside.started(session.private, "meson", [*target.command, "-C", str(build)], chosen), needs=True
            ),
        ]

    def parse(self, results: Results) -> Parsed:
        if len(results.exit_codes) < 3 and not results.stopped:
            return self.unbuilt(results)
        with end_of(results) as stream:
            if stream.read().rstrip().endswith((b"No tests defined.", b"No suitable tests defined.")):
                return Parsed(ended=True)
        build = Path((results.private / "build").read_text())
        return meson_log.results(build, results.folder, results.private)

    asked = staticmethod(unskipped)

    def again(self, target: Target, test: TestResult) -> list[str]:
        inner = [f"{name}={value}" for name, value in inside.filters(test).items()]
        one = [*(["env", *inner] if inner else []), "meson", "test", "-C", "build", _meson_name(test)]
        return ["sh", "-c", " && ".join([*(target.setup or self.setup), shlex.join(one)])]


class Automake(Usual):
    """`make check` as Automake makes it: its lines on the console, and a log for each test beside it."""

    name = "automake"
    family = "native"
    covers_below = True
    setup = ("autoreconf -i", "./configure")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named("**/configure.ac"):
            root = root_of(path)
            made = [name for name in project.named("**/Makefile.am") if name in project.inside(root)]
            if said := next((name for name in made if _TESTS_OF_MAKE.search(project.text(name))), ""):
                yield Target(
                    runner=self.name,
                    command=["make", "check"],
                    root=root,
                    language="c",
                    tests=under(root, *_TESTS),
                    sources=under(root, *_SOURCES),
                    protected=[],
                    setup=list(self.setup),
                    why=f"{said} has tests",
                    strength=Strength.PATTERN,  # where there is CMake or meson too, they say more
                )

    def recognises(self, words: list[str]) -> bool:
        return False  # whose `make check` it is cannot be seen

    def launch(self, target: Target, session: Session) -> list[Step]:
        given, command = make_check.environment(session), [*target.command, "-k"]
        if not session.only:
            return [Step(argv=[*command, *given])]
        places: dict[str, list[TestResult]] = {}
        for test in session.only:
            places.setdefault(make_check.script(test)[0], []).append(test)
        return [
            Step(argv=[*command, "-C", folder, make_check.chosen(tests), *given], env=make_check.filters(tests))
            for folder, tests in places.items()
        ]

    def parse(self, results: Results) -> Parsed:
        return make_check.logged(read_log(results, _automake), results)

    asked = staticmethod(unskipped)

    def again(self, target: Target, test: TestResult) -> list[str]:
        folder, _ = make_check.script(test)
        inner = [f"{name}={value}" for name, value in make_check.filters([test]).items()]
        place = ["-C", folder] if folder != "." else []
        return [*(["env", *inner] if inner else []), *target.command, *place, make_check.chosen([test])]


_TESTS_OF_MAKE = re.compile(r"(?m)^(?:dist_|nodist_)?(?:check_)?(?:TESTS|SCRIPTS_TESTS)\s*\+?=")


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
    if test.name and not inside.is_inside(test):
        return meson_log.plain_name(test.name)
    whole = test.suite[0] if test.suite else test.id.partition("::")[0]
    return meson_log.plain_name(whole) if " / " in whole else whole.partition(".")[2] or whole


def _meson_inner(test: TestResult) -> str:
    whole = test.suite[0] if inside.is_inside(test) else test.id.partition("::")[0]
    return test.id[len(whole) :] if test.id.startswith(f"{whole}::") else ""


def _ctest_name(test: TestResult) -> str:
    """Of a test that a program of ctest's has inside, the program's."""
    return test.suite[0] if _is_googles(test) or inside.is_inside(test) else test.name or test.id


def _is_googles(test: TestResult) -> bool:
    return len(test.suite) > 1 and test.id.startswith(f"{test.suite[1]}.")


def _filtered(tests: list[TestResult]) -> dict[str, str]:
    """What has GoogleTest's programs run these only. Those that ctest starts with a test's name do not heed it."""
    names = [test.id for test in tests if _is_googles(test)]
    return {"GTEST_FILTER": ":".join(names)} if names else {}


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


def _refined(whole: Parsed, finer: list[TestResult], ran: dict[str, list[str]]) -> Parsed:
    """One GoogleTest program is one test to ctest, or its tests are ctest's too: the program knows more of both."""
    known = {test.id: test for test in finer}
    kept: list[TestResult] = []
    for test in whole.tests:
        names = ran.get(test.name, [])
        told = [_of_ctest(known[name], test.name) for name in names or [test.name] if name in known]
        lost = [name for name in names if name not in known] if test.status is not TestStatus.SKIPPED else []
        kept += told
        if lost or not told:
            kept.append(_unfinished(test, lost[-1]) if lost else test)
    heard = {test.id for test in kept}
    return msgspec.structs.replace(
        whole, tests=[*kept, *(test for name, test in known.items() if name not in heard)], reported={}
    )


_OUTPUT_BYTES = 1 << 20  # ctest itself keeps less of each


def _outputs(path: Path, how: dict[str, str]) -> tuple[dict[str, inside.Ends], dict[str, list[str]]]:
    """What each program's output says of the tests inside: of all libraries, and which GoogleTest's has begun."""
    ends: dict[str, inside.Ends] = {}
    ran: dict[str, list[str]] = {}
    for name, output in _texts(path) if path.exists() else ():
        if begun := _RAN.findall(output):
            ran[name] = begun
        else:
            ends[name] = inside.ends(how.get(name, ""), output)
    return ends, ran


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    name, said, size = "", list[str](), 0
    with path.open("rb") as stream:
        for row in lines(stream):
            if case := _CASE.search(row):
                yield name, html.unescape("\n".join(said))
                name, said, size = html.unescape(case.group(1)), [], 0
            text = row.rpartition("<system-out>")[2]
            if (size := size + len(text)) < _OUTPUT_BYTES:
                said.append(text.removesuffix("</system-out>"))
    yield name, html.unescape("\n".join(said))


def _of_ctest(test: TestResult, name: str) -> TestResult:
    """Under its own name, with that of the program before it where ctest knows no other."""
    return test if name == test.id else msgspec.structs.replace(test, suite=[name, *test.suite])


def _unfinished(test: TestResult, name: str) -> TestResult:
    """A program that began a test and left no result of it: whatever its exit code says, it has not passed."""
    said = test.failure or Failure()
    message = said.message if said.message.startswith("ctest says") else f"{name} was running when its program ended"
    failure = msgspec.structs.replace(said, type="Crashed", message=message)
    return msgspec.structs.replace(test, status=TestStatus.ERROR, failure=failure)
