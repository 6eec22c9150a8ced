"""Runner for Go, read from the stream of `go test -json`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import compiler, merge_parsed, open_log_tail, parse_file, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import RED, Diagnostic, Failure, TestResult
from ratchet.tree_files import is_source, read_source

_go_json = parser("go_json")

_CHANNEL = "go{}.json"
_NAME = re.compile(r"(.*?)\.((?:Test|Example|Fuzz|Benchmark)[^/.]*(?:/.*|$))")
_PASSED_OVER = re.compile(r"(?:^|/)(?:[_.][^/]+|testdata|vendor)(?:/|$)")  # also by `./...`
_ABSENT = "no required module provides package"  # a project that is not set up
_LOGS = re.compile(r"\.Logf?\(")
_FUNCTION = re.compile(r"(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)\(")
_ID = re.compile(r"(.+?)\.((?:Test|Example|Fuzz|Benchmark).*)", re.S)


class Go(BaseRunner):
    name = family = "go"

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.glob("**/go.mod"):
            root = parent_of(path)
            if _PASSED_OVER.search(root):
                continue
            yield Target(
                runner=self.name,
                command=["go", "test", "./..."],
                root=root,
                language="go",
                tests=join_root(root, "**/*_test.go", "**/testdata/**"),
                sources=join_root(root, "**/*.go"),
                protected=[],
                setup=["go mod download"],
                why=f"there is a {path}",
                strength=Confidence.CONFIG,
            )

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[:2]] == ["go", "test"]

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        words = target.command
        flags, every = _flags(words)
        runs = _runs([_read(test) for test in session.only], every)
        # -count=1: a cached result belongs to another run.
        options = [*words[:2], *flags, "-json", "-count=1"]
        return [
            LaunchStep(
                argv=[*options, *(["-run", pattern] if pattern else []), *packages],
                channel=_CHANNEL.format(number or ""),
            )
            for number, (pattern, packages) in enumerate(runs.items())
        ]

    def parse(self, results: RunOutput) -> Parsed:
        parts = [parse_file(path, _go_json) for path in sorted(results.private.glob(_CHANNEL.format("*")))]
        parsed = merge_parsed(parts) if parts else Parsed(ended=False)
        parsed.tests = _once(parsed.tests)
        parsed.compile_errors = list(dict.fromkeys(parsed.compile_errors))
        vague = [error for error in parsed.compile_errors if not error.line]
        unloaded = not parsed.tests and not parsed.ended and not results.stopped
        if results.exit_code and (vague or unloaded):
            # Before Go 1.24 compiler errors were only on stderr; the stream merely reports the failure.
            with open_log_tail(results) as stream:
                exact = [error for error in compiler(stream).compile_errors if _ABSENT not in error.message]
            parsed.compile_errors = [error for error in parsed.compile_errors if error.line] + (exact or vague)
            parsed.ended = parsed.ended or bool(exact)
        places = _Places(results.folder)
        parsed.tests = [places.placed(test) for test in parsed.tests]
        parsed.collection_errors = list(dict.fromkeys(map(places.folder_of, parsed.collection_errors)))
        return parsed

    def locate(self, test: TestResult, folder: Path) -> TestResult:
        """Locate a test that never finished, by its name."""
        if not test.failure:
            return test
        found = _Places(folder).placed(msgspec.structs.replace(_read(test), failure=None))
        failure = msgspec.structs.replace(test.failure, file=found.file, line=found.line)
        return msgspec.structs.replace(found, failure=failure)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        package = _package(test) or "./..."
        name = test.name or _parted(test.id)[1]
        return [*target.command[:2], *_flags(target.command)[0], "-run", *_patterns([name]), package]


class _Places:
    """Locates tests: Go reports packages only, and a package is a folder below the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        module = re.search(r"(?m)^module\s+(\S+)", read_source(folder, "go.mod"))
        self.module = module.group(1) if module else ""
        self.known: dict[str, dict[str, tuple[str, int]]] = {}
        self.sources: dict[str, list[str]] = {}

    def placed(self, test: TestResult) -> TestResult:
        package = test.suite[0].partition(" ")[0] if test.suite else ""
        if not self.module or not f"{package}/".startswith(f"{self.module}/"):
            return test
        place = package[len(self.module) + 1 :]
        failure = test.failure
        if failure:
            failure = self._unlogged(place, test.stdout, failure)
            failure = msgspec.structs.replace(failure, file=self._inside(place, failure.file))
        if package not in self.known:
            self.known[package] = dict(self._written(place))
        location = (failure.file if failure else test.file, test.line)
        file, line = self.known[package].get(test.name.partition("/")[0], location)
        return msgspec.structs.replace(test, file=file, line=line, failure=failure)

    def folder_of(self, error: Diagnostic) -> Diagnostic:
        inside = f"{error.file}/".startswith(f"{self.module}/") if self.module else False
        place = error.file[len(self.module) + 1 :] or "." if inside else error.file
        return msgspec.structs.replace(error, file=place)

    def _unlogged(self, place: str, output: str, failure: Failure) -> Failure:
        """Separate log lines from errors: before Go 1.27 they look alike, and only the source distinguishes them."""
        if not failure.line or failure.frames or not self._is_logged(place, failure.file, failure.line):
            return failure
        from ratchet.checks.formats.go_json import explained, place_of  # noqa: PLC0415 — needed only to parse

        rows = output.splitlines(keepends=True)
        kept, logged = [], False
        for row in rows:
            if at := place_of(row):
                logged = self._is_logged(place, *at)
            kept += [] if logged else [row]
        return explained(output, "".join(kept)) if any(map(place_of, kept)) else failure

    def _is_logged(self, place: str, file: str, line: int) -> bool:
        if file not in self.sources:
            self.sources[file] = read_source(self.folder, f"{place}/{file}").splitlines()
        return bool(_LOGS.search("".join(self.sources[file][line - 1 : line])))

    def _inside(self, place: str, file: str) -> str:
        """Add the package's folder to a file name, which Go prints without it."""
        bare = file and place and "/" not in file and is_source(self.folder, f"{place}/{file}")
        return f"{place}/{file}" if bare else file

    def _written(self, place: str) -> Iterator[tuple[str, tuple[str, int]]]:
        for path in sorted((self.folder / place).glob("*_test.go")):
            text = read_source(self.folder, str(path))
            for match in _FUNCTION.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield match.group(1), (path.relative_to(self.folder).as_posix(), line)


def _read(test: TestResult) -> TestResult:
    """Build a test from its id alone: `package.Test/sub`, or `Test` in any package."""
    if test.suite or test.file.endswith(".go"):
        return test
    package, name = found.groups() if (found := _NAME.match(test.id)) else ("", test.id)
    return msgspec.structs.replace(test, suite=[package] if package else [], name=name, file="")


def _flags(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options and the packages, which end at the next option."""
    rest = words[2:]
    at = max((n + 1 for n, word in enumerate(rest) if _is_package(word)), default=len(rest))
    begin = at
    while begin and _is_package(rest[begin - 1]):
        begin -= 1
    return [*rest[:begin], *rest[at:]], rest[begin:at]


def _is_package(word: str) -> bool:
    return not word.startswith("-") and (word.startswith(".") or "/" in word or "..." in word)


def _package(test: TestResult) -> str:
    """Return the package as an argument: the folder of the test's file if known, else its import path."""
    if test.file.endswith("_test.go"):
        return f"./{parent_of(test.file)}" if "/" in test.file else "."
    package = test.suite[0].partition(" ")[0] if test.suite else _parted(test.id)[0]
    return "" if package == "command-line-arguments" else package


def _parted(id: str) -> tuple[str, str]:
    """Split an id into package and name."""
    found = _ID.fullmatch(id)
    return (found[1], found[2]) if found else ("", re.split(r"::|\.(?=[A-Z])", id)[-1])


def _runs(tests: list[TestResult], every: list[str]) -> dict[str, list[str]]:
    """Group the packages by pattern. One pattern for all would also run other tests of these names."""
    names: dict[str, list[str]] = {}
    for test in tests:
        is_package = test.id == test.file
        names.setdefault(_package(test), []).append("" if is_package else test.name or _parted(test.id)[1])
    runs: dict[str, list[str]] = {}
    for package, chosen in names.items():
        for pattern in _patterns(chosen):
            runs.setdefault(pattern, []).extend([package] if package else every)
    return runs or {"": every}


def _patterns(names: list[str]) -> list[str]:
    """Return the patterns. Go matches each part between slashes separately, so only tests of one parent share a
    pattern."""
    if "" in names:
        return [""]
    inside: dict[str, list[str]] = {}
    for name in names:
        around, _, last = name.rpartition("/")
        if not any(f"{name}/".startswith(f"{other}/") for other in names if other != name):
            inside.setdefault(around, []).append(re.escape(last))
    return ["/".join([*_exactly(around), _one_of(lasts)]) for around, lasts in inside.items()]


def _exactly(name: str) -> list[str]:
    return [f"^{re.escape(part)}$" for part in name.split("/") if part]


def _one_of(words: list[str]) -> str:
    return f"^{words[0]}$" if len(words) == 1 else f"^({'|'.join(dict.fromkeys(words))})$"


def _once(tests: list[TestResult]) -> list[TestResult]:
    """Merge repeated results of a test that ran again for a subtest: it has failed if it failed once."""
    found: dict[str, TestResult] = {}
    for test in tests:
        if test.id not in found or (test.status in RED and found[test.id].status not in RED):
            found[test.id] = test
    return list(found.values())
