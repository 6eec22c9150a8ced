"""Runners for C and C++: ctest, meson and Automake, with the results of GoogleTest and other libraries where
available."""

from __future__ import annotations

import hashlib
import html
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.formats.text import lines
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    build_options,
    c_subtests,
    compiler,
    drop_unselected_skips,
    junit,
    make_check,
    merge_parsed,
    meson_log,
    open_log_tail,
    parse_file,
    parse_log,
    parser,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import RED, Failure, TestResult, TestStatus
from ratchet.process.spawn import is_sandboxed
from ratchet.tree_files import remove_folder

_gtest_json = parser("gtest_json")
_automake = parser("automake")
_console = parser("console")

_PASSED_BYTES = "300000"  # output limit of passed tests, equal to that of failed ones
_SOURCE = "ratchet-source"  # in our own build folder: the folder that it belongs to
_RAN = re.compile(r"(?m)\[ RUN      \] (\S+\.\S+?)$")  # GoogleTest's; cmocka's has the same form without a dot
_CASE = re.compile(r'<testcase name="([^"]*)"')
_HOW = re.compile(
    r"(?m)^ *\d+/\d+ Test +#\d+: (.+?) \.*\**(Failed|Timeout|Not Run|Exception: \w+|Subprocess (?:aborted|killed))"
)


_ENABLED = re.compile(
    r"(?i)\b(?:enable_testing|add_test|(?:gtest|catch|doctest)_(?:discover|add)_tests?)\s*\(|include\s*\(\s*CTest\b"
)
_TESTS = ("test/**", "tests/**", "**/*_test.cpp", "**/*_test.cc", "**/test_*.cpp", "**/test_*.c")
_SOURCES = ("**/*.c", "**/*.cc", "**/*.cpp", "**/*.h", "**/*.hpp")


class _Native(BaseRunner):
    """Base of build systems: the topmost file of a tree is the project, and any file may define tests."""

    family = "native"
    covers_subfolders = True
    manifest = ""
    project = re.compile("")
    marker = re.compile("")
    setup: tuple[str, ...] = ()
    strength = Confidence.CONFIG

    def detect(self, project: Project) -> Iterator[Target]:
        tops: list[str] = []
        for path in project.glob(f"**/{self.manifest}"):
            root = parent_of(path)
            if any(top in (".", root) or root.startswith(f"{top}/") for top in tops):
                continue  # a part of the project above
            if not self.project.search(project.text(path)):
                continue
            tops.append(root)
            if file := self._test_file(project, root):
                yield self.target(root, f"{file} has tests", self.setup_options(project, root))

    def _test_file(self, project: Project, root: str) -> str:
        below = [
            path for path in project.glob(f"**/{self.manifest}", "**/*.cmake") if path in project.files_below(root)
        ]
        return next((path for path in below if self.marker.search(project.text(path))), "")

    def setup_options(self, project: Project, root: str) -> list[str]:
        """Return the setup options that enable the tests."""
        return []

    def target(self, root: str, why: str, options: list[str]) -> Target:
        return Target(
            runner=self.name,
            command=[self.programs[0]] if self.name == "ctest" else [self.programs[0], "test"],
            root=root,
            language="c++",
            tests=join_root(root, *_TESTS),
            sources=join_root(root, *_SOURCES),
            protected=[],
            setup=[" ".join([self.setup[0], *options]), *self.setup[1:]],
            why=why,
            strength=self.strength,
        )

    def build_error(self, results: RunOutput) -> Parsed:
        """Return the compiler errors of a failed build."""
        with open_log_tail(results) as stream:
            errors = compiler(stream).compile_errors
        return Parsed(compile_errors=errors, ended=bool(errors))


class CTest(_Native):
    name = "ctest"
    programs = ("ctest",)
    manifest = "CMakeLists.txt"
    project = re.compile(r"(?im)^\s*project\s*\(|enable_testing")
    marker = _ENABLED
    setup_options = staticmethod(build_options.of_cmake)
    setup = ("cmake -S . -B build", "cmake --build build")

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        build, project = build_dir(session), Project(session.folder)
        ours = session.folder not in build.parents
        jobs = str(os.cpu_count() or 1)
        output = ["--test-dir", str(build), "--output-junit", str(session.private / "ctest.xml"), "--output-on-failure"]
        output += ["--test-output-size-passed", _PASSED_BYTES]
        env = {"GTEST_OUTPUT": f"json:{session.private / 'gtest'}{os.sep}", "GTEST_COLOR": "no"}
        env |= {"BOOST_TEST_COLOR_OUTPUT": "no"} | _filtered(session.only)
        chosen = [_ctest_name(test) if _is_googles(test) else test.id for test in session.only]
        return [
            LaunchStep(argv=["cmake", "-S", ".", "-B", str(build), *(build_options.of_cmake(project) if ours else [])]),
            LaunchStep(argv=["cmake", "--build", str(build), "--parallel", jobs], needs_success=True),
            LaunchStep(
                argv=c_subtests.wrap_command(session.private, "ctest", [*target.command, *output], chosen),
                env=env,
                needs_success=True,
            ),
        ]

    def parse(self, results: RunOutput) -> Parsed:
        if len(results.exit_codes) < 3 and not results.stopped:
            return self.build_error(results)
        whole = parse_file(path, junit) if (path := results.private / "ctest.xml").exists() else _cut_off(results)
        with open_log_tail(results) as stream:
            how = dict(_HOW.findall(stream.read().decode(errors="replace")))
        whole.tests = [_with_compile_errors(test, how.get(test.name, "")) for test in whole.tests]
        known = c_subtests.programs(results.private)
        ends, ran = _outputs(results.private / "ctest.xml", how)
        whole = c_subtests.with_subtests(
            whole, {name: each for name, each in known.items() if each.library != "gtest"}, ends
        )
        files = [*(results.private / "gtest").glob("*.json"), *(results.private / "inside").glob("*.json")]
        finer = merge_parsed(parse_file(path, _gtest_json) for path in sorted(files))
        return _with_subtests(whole, finer.tests, ran if files else {})

    filter_results = staticmethod(drop_unselected_skips)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        """Return a command for a build folder of the project: a person need not know where ours is."""
        one = ["ctest", "--test-dir", "build", "-R", f"^{re.escape(_ctest_name(test))}$", "--output-on-failure"]
        inner = [f"{name}={value}" for name, value in (_filtered([test]) | c_subtests.filters(test)).items()]
        words = [*(["env", *inner] if inner else []), *one]
        return ["sh", "-c", " && ".join([*(target.setup or self.setup), shlex.join(words)])]


class Meson(_Native):
    """Runner for meson, read from the JUnit file that `meson test` writes beside its log."""

    name = "meson"
    programs = ("meson",)
    manifest = "meson.build"
    project = re.compile(r"(?m)^\s*project\s*\(")
    marker = re.compile(r"(?m)^\s*test\s*\(")
    setup_options = staticmethod(build_options.of_meson)
    setup = ("meson setup build",)
    strength = Confidence.SCRIPT  # with CMake too, that is tried first

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        own = session.folder / "build"
        build = own if (own / "meson-info").is_dir() else build_dir(session)
        (session.private.parent / "build").write_text(str(build))
        known = (build / "meson-info").is_dir()
        options = [] if build == own else build_options.of_meson(Project(session.folder))
        chosen = [_meson_name(test) + _meson_inner(test) for test in session.only]
        # Delete the file of the last run, in case meson writes none this time.
        meson_log.forget(build)
        return [
            LaunchStep(argv=["meson", "setup", *(["--reconfigure"] if known else []), *options, str(build)]),
            LaunchStep(argv=["meson", "compile", "-C", str(build)], needs_success=True),
            LaunchStep(
                argv=c_subtests.wrap_command(session.private, "meson", [*target.command, "-C", str(build)], chosen),
                needs_success=True,
            ),
        ]

    def parse(self, results: RunOutput) -> Parsed:
        build = Path((results.private.parent / "build").read_text())
        if len(results.exit_codes) < 3 and not results.stopped:
            parsed = self.build_error(results)
            parsed.compile_errors = meson_log.running_from_folder(parsed.compile_errors, build, results.folder)
            return parsed
        with open_log_tail(results) as stream:
            if stream.read().rstrip().endswith((b"No tests defined.", b"No suitable tests defined.")):
                return Parsed(ended=True)
        return meson_log.results(build, results.folder, results.private)

    filter_results = staticmethod(drop_unselected_skips)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        inner = [f"{name}={value}" for name, value in c_subtests.filters(test).items()]
        one = [*(["env", *inner] if inner else []), "meson", "test", "-C", "build", _meson_name(test)]
        return ["sh", "-c", " && ".join([*(target.setup or self.setup), shlex.join(one)])]


class Automake(BaseRunner):
    """Runner for Automake's `make check`, read from its console output and the log of each test."""

    name = "automake"
    family = "native"
    covers_subfolders = True
    setup = ("autoreconf -i", "./configure")

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/configure.ac"):
            root = parent_of(path)
            made = [name for name in project.glob("**/Makefile.am") if name in project.files_below(root)]
            if file := next((name for name in made if _TESTS_OF_MAKE.search(project.text(name))), ""):
                yield Target(
                    runner=self.name,
                    command=["make", "check"],
                    root=root,
                    language="c",
                    tests=join_root(root, *_TESTS),
                    sources=join_root(root, *_SOURCES),
                    protected=[],
                    setup=list(self.setup),
                    why=f"{file} has tests",
                    strength=Confidence.PATTERN,  # with CMake or meson too, they report more
                )

    def recognises(self, words: list[str]) -> bool:
        return False  # the generator of `make check` is unknown

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        given, command = make_check.environment(session), [*target.command, "-k"]
        if not session.only:
            return [LaunchStep(argv=[*command, *given])]
        places: dict[str, list[TestResult]] = {}
        for test in session.only:
            places.setdefault(make_check.script(test)[0], []).append(test)
        return [
            LaunchStep(
                argv=[*command, "-C", folder, make_check.selected_tests(tests), *given], env=make_check.filters(tests)
            )
            for folder, tests in places.items()
        ]

    def parse(self, results: RunOutput) -> Parsed:
        return make_check.parse_logs(parse_log(results, _automake), results)

    filter_results = staticmethod(drop_unselected_skips)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        folder, _ = make_check.script(test)
        inner = [f"{name}={value}" for name, value in make_check.filters([test]).items()]
        place = ["-C", folder] if folder != "." else []
        return [*(["env", *inner] if inner else []), *target.command, *place, make_check.selected_tests([test])]


_TESTS_OF_MAKE = re.compile(r"(?m)^(?:dist_|nodist_)?(?:check_)?(?:TESTS|SCRIPTS_TESTS)\s*\+?=")


def _with_compile_errors(test: TestResult, how: str) -> TestResult:
    """Add how each program ended, which is only on the console: Failed, Timeout, Exception: SegFault."""
    explained = test.failure and test.failure.message and (test.failure.file or how == "Failed")
    if test.status not in RED or not how or explained:
        return test
    failure = msgspec.structs.replace(
        test.failure or Failure(), type=how.partition(":")[0], message=f"ctest says: {how}"
    )
    return msgspec.structs.replace(test, failure=failure)


def _meson_name(test: TestResult) -> str:
    """Return the name without project and suite, which precede the first dot."""
    if test.name and not c_subtests.is_subtest(test):
        return meson_log.plain_name(test.name)
    whole = test.suite[0] if test.suite else test.id.partition("::")[0]
    return meson_log.plain_name(whole) if " / " in whole else whole.partition(".")[2] or whole


def _meson_inner(test: TestResult) -> str:
    whole = test.suite[0] if c_subtests.is_subtest(test) else test.id.partition("::")[0]
    return test.id[len(whole) :] if test.id.startswith(f"{whole}::") else ""


def _ctest_name(test: TestResult) -> str:
    """Return the ctest name of a test, or of the program that contains it."""
    return test.suite[0] if _is_googles(test) or c_subtests.is_subtest(test) else test.name or test.id


def _is_googles(test: TestResult) -> bool:
    return len(test.suite) > 1 and test.id.startswith(f"{test.suite[1]}.")


def _filtered(tests: list[TestResult]) -> dict[str, str]:
    """Return the variables that make GoogleTest programs run only these tests. Programs that ctest starts with a
    test's name ignore them."""
    names = [test.id for test in tests if _is_googles(test)]
    return {"GTEST_FILTER": ":".join(names)} if names else {}


def build_dir(session: Session) -> Path:
    """Return the project's own build folder, if it has a suitable one; else one of ours outside, kept for later
    runs. In a sandbox nothing outside can be written, and what sealed tests are compiled to may not be kept."""
    own = session.folder / "build"
    if (own / "CMakeCache.txt").exists():
        return own
    if is_sandboxed():
        return session.private / "built"
    cache = Path(session.env.get("XDG_CACHE_HOME") or Path(session.env.get("HOME", "/tmp")) / ".cache")  # noqa: S108
    builds = cache / "ratchet" / "build"
    _forget_the_gone(builds)
    build = builds / hashlib.sha256(str(session.folder).encode()).hexdigest()[:16]
    build.mkdir(parents=True, exist_ok=True)
    (build / _SOURCE).write_text(str(session.folder))
    return build


def _forget_the_gone(builds: Path) -> None:
    """Delete builds of workspaces that no longer exist."""
    for marker in builds.glob(f"*/{_SOURCE}"):
        if not Path(marker.read_text()).is_dir():
            remove_folder(marker.parent)


def _with_subtests(whole: Parsed, finer: list[TestResult], ran: dict[str, list[str]]) -> Parsed:
    """Replace ctest's results by those of the GoogleTest programs, which know more: ctest may list a program or its
    tests."""
    known = {test.id: test for test in finer}
    kept: list[TestResult] = []
    for test in whole.tests:
        names = ran.get(test.name, [])
        listed = [_of_ctest(known[name], test.name) for name in names or [test.name] if name in known]
        lost = [name for name in names if name not in known] if test.status is not TestStatus.SKIPPED else []
        kept += listed
        if lost or not listed:
            kept.append(_unfinished(test, lost[-1]) if lost else test)
    kept_ids = {test.id for test in kept}
    return msgspec.structs.replace(
        whole, tests=[*kept, *(test for name, test in known.items() if name not in kept_ids)], reported={}
    )


_START = re.compile(r"^ +Start +\d+: (.+)$")


def _cut_off(results: RunOutput) -> Parsed:
    """Read the finished and started tests of a program from the console if it ended before writing its file."""
    parsed = parse_log(results, _console)
    with results.log.open("rb") as stream:
        stream.seek(results.log_offset)
        begun = [match[1] for row in lines(stream) if (match := _START.match(row))]
    done = {test.name for test in parsed.tests}
    return Parsed(tests=parsed.tests, running=[name for name in begun if name not in done], ended=False)


_OUTPUT_BYTES = 1 << 20  # ctest itself keeps less of each


def _outputs(path: Path, how: dict[str, str]) -> tuple[dict[str, c_subtests.ProgramEnd], dict[str, list[str]]]:
    """Read the tests inside each program from its output: of all libraries, and the started ones of GoogleTest."""
    ends: dict[str, c_subtests.ProgramEnd] = {}
    ran: dict[str, list[str]] = {}
    for name, output in _texts(path) if path.exists() else ():
        if begun := _RAN.findall(output):
            ran[name] = begun
        else:
            ends[name] = c_subtests.program_end(how.get(name, ""), output)
    return ends, ran


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    name, output, size = "", list[str](), 0
    with path.open("rb") as stream:
        for row in lines(stream):
            if case := _CASE.search(row):
                yield name, html.unescape("\n".join(output))
                name, output, size = html.unescape(case.group(1)), [], 0
            text = row.rpartition("<system-out>")[2]
            if (size := size + len(text)) < _OUTPUT_BYTES:
                output.append(text.removesuffix("</system-out>"))
    yield name, html.unescape("\n".join(output))


def _of_ctest(test: TestResult, name: str) -> TestResult:
    """Name a test as ctest does; prefix the program if ctest does not list it."""
    return test if name == test.id else msgspec.structs.replace(test, suite=[name, *test.suite])


def _unfinished(test: TestResult, name: str) -> TestResult:
    """Mark programs that started a test without a result: whatever the exit code, the test has not passed."""
    known = test.failure or Failure()
    message = known.message if known.message.startswith("ctest says") else f"{name} was running when its program ended"
    failure = msgspec.structs.replace(known, type="Crashed", message=message)
    return msgspec.structs.replace(test, status=TestStatus.ERROR, failure=failure)
