"""Runners that need no more than a flag: .NET, Dart, Swift, and Zig and Gleam, which print text only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import (
    SHIMS,
    Parser,
    Usual,
    channel_env,
    compiler,
    end_of,
    joined,
    junit,
    parser,
    read,
    read_log,
    read_records,
)
from ratchet.core.report import Diagnostic, TestResult

_dart_json = parser("dart_json")
_gleam = parser("gleam")
_trx = parser("trx")
_zig = parser("zig")


class _Flagged(Usual):
    """A runner with a manifest, a command and an option that names the result file."""

    language = ""
    manifests: tuple[str, ...] = ()
    marker = ""
    command: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        for path in project.named(*(f"**/{name}" for name in self.manifests)):
            if self.marker in project.text(path):
                root = root_of(path)
                yield Target(
                    runner=self.name,
                    command=list(self.command),
                    root=root,
                    language=self.language,
                    tests=under(root, *self.tests),
                    sources=under(root, *self.sources),
                    protected=[],
                    setup=list(self.setup),
                    why=f"there is a {path}",
                    strength=Strength.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[: len(self.command)]] == list(self.command)

    def explained(self, parsed: Parsed, results: Results) -> Parsed:
        """With what the compiler printed, when nothing ran."""
        if results.exit_code and not parsed.tests and not results.stopped:
            with end_of(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed


class DotNet(_Flagged):
    name = family = "dotnet"
    language = "c#"
    manifests = ("*Test*.csproj", "*test*.csproj", "*Test*.fsproj")
    marker = "Microsoft.NET.Test.Sdk"
    command = ("dotnet", "test")
    tests = ("**/*Test*.cs", "**/*Tests/**")
    sources = ("**/*.cs", "**/*.fs")
    setup = ("dotnet restore",)

    def launch(self, target: Target, session: Session) -> list[Step]:
        names = "|".join(f"FullyQualifiedName={test.id}" for test in session.only)
        chosen = ["--filter", names] if names else []
        return [Step(argv=[*target.command, "--logger", "trx", "--results-directory", str(session.private), *chosen])]

    def parse(self, results: Results) -> Parsed:
        files = sorted(results.private.rglob("*.trx"))
        parsed = joined(read(path, _trx) for path in files) if files else Parsed(ended=False)
        return self.explained(parsed, results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, "--filter", f"FullyQualifiedName={test.id}"]


class Dart(_Flagged):
    name = family = language = "dart"
    manifests = ("pubspec.yaml",)
    command = ("dart", "test")
    tests = ("test/**",)
    sources = ("lib/**",)
    setup = ("dart pub get",)

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = list(dict.fromkeys(test.file for test in session.only if test.file))
        return [Step(argv=[*target.command, "--file-reporter", f"json:{session.private / 'dart.json'}", *files])]

    def parse(self, results: Results) -> Parsed:
        return self.explained(read(results.private / "dart.json", _dart_json), results)


class Swift(_Flagged):
    name = family = language = "swift"
    manifests = ("Package.swift",)
    command = ("swift", "test")
    tests = ("Tests/**",)
    sources = ("Sources/**",)

    def launch(self, target: Target, session: Session) -> list[Step]:
        chosen = [word for test in session.only for word in ("--filter", test.id)]
        return [Step(argv=[*target.command, "--xunit-output", str(session.private / "junit.xml"), *chosen])]

    def parse(self, results: Results) -> Parsed:
        files = sorted(results.private.glob("junit*.xml"))
        parsed = joined(read(path, junit) for path in files) if files else Parsed(ended=False)
        return self.explained(parsed, results)


class Zig(_Flagged):
    """Through `zig build test`, whose runner prints one line for each test where its output is not a terminal."""

    name = family = language = "zig"
    manifests = ("build.zig",)
    command: tuple[str, ...] = ("zig", "build", "test")
    tests: tuple[str, ...] = ("**/*.zig",)
    sources: tuple[str, ...] = ("**/*.zig",)
    text: Parser = staticmethod(_zig)

    def launch(self, target: Target, session: Session) -> list[Step]:
        return [Step(argv=target.command)]

    def parse(self, results: Results) -> Parsed:
        return self.explained(read_log(results, self.text), results)


class Gleam(Zig):
    """gleeunit prints a dot for a pass: with the failures' names and the sum that is all there is."""

    name = family = language = "gleam"
    manifests = ("gleam.toml",)
    command = ("gleam", "test")
    tests = ("test/**",)
    sources = ("src/**",)
    text: Parser = staticmethod(_gleam)

    def parse(self, results: Results) -> Parsed:
        parsed = super().parse(results)
        if parsed.tests and parsed.reported.get("failed") == len(parsed.tests):
            parsed.reported = {}
        return parsed


class Nim(Zig):
    """What `nimble test` prints of Nim's unittest."""

    name = family = language = "nim"
    manifests = ("*.nimble",)
    command = ("nimble", "test")
    tests = ("tests/**",)
    sources = ("**/*.nim",)
    setup = ("nimble install --depsOnly --accept",)
    text: Parser = staticmethod(parser("nim"))

    def parse(self, results: Results) -> Parsed:
        """Without what nimble's own script says of a program that did not compile: the compiler has said it."""
        parsed = super().parse(results)
        own = [error for error in parsed.compile_errors if not error.file.endswith("/nimscript.nim")]
        parsed.compile_errors = own or parsed.compile_errors
        return parsed

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            if any(project.named(*under(target.root, "tests/*.nim"))):
                yield target

    def again(self, target: Target, test: TestResult) -> list[str]:
        chosen = [test.id] if test.id != test.file else []
        return ["nim", "c", "-r", test.file, *chosen] if test.file else target.command


class Busted(_Flagged):
    """Lua, by the JUnit file of busted, and by a guest where it did not come to write that."""

    name = family = "busted"
    language = "lua"
    manifests = (".busted", "spec/*_spec.lua")
    command = ("busted",)
    tests = ("spec/**", ".busted")
    sources = ("**/*.lua",)

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            root = target.root.removesuffix("spec").rstrip("/") or "."
            yield msgspec.structs.replace(
                target, root=root, tests=under(root, *self.tests), sources=under(root, *self.sources)
            )

    def launch(self, target: Target, session: Session) -> list[Step]:
        output = ["-o", str(SHIMS / "_ratchet_busted.lua"), f"-Xoutput={session.private / 'junit.xml'}"]
        parts = [(test.file, test.name) if test.name else test.id.split("::", 1) for test in session.only]
        names = [f"--filter={_lua_pattern(name)}$" for _, *rest in parts for name in rest if name]
        files = list(dict.fromkeys(file for file, *_ in parts if file))
        return [Step(argv=[*target.command, *output, *names, *files], env=channel_env(session))]

    def parse(self, results: Results) -> Parsed:
        if not (results.private / "junit.xml").exists():
            return read_records(results)
        parsed = read(results.private / "junit.xml", junit)
        parsed.collection_errors = [_lua_placed(error) for error in parsed.collection_errors]
        return parsed

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, f"--filter={_lua_pattern(test.name)}$", *([test.file] if test.file else [])]


_LUA_PLACE = re.compile(r"(?P<file>\S+?\.lua):(?P<line>\d{1,9}): (?P<message>.*?)(?:\nstack traceback:.*)?", re.S)


def _lua_placed(error: Diagnostic) -> Diagnostic:
    """What went wrong around tests is told of the run, and where in the message only."""
    found = _LUA_PLACE.fullmatch(error.message.strip()) if not error.line else None
    if not found:
        return error
    return msgspec.structs.replace(error, file=found["file"], line=int(found["line"]), message=found["message"])


def _lua_pattern(name: str) -> str:
    return "".join(f"%{c}" if c in "^$()%.[]*+-?" else c for c in name)


class TestThat(Usual):
    """R's testthat, by a reporter of ours. It runs whole files: a test has no name that could be asked for."""

    __test__ = False  # to pytest
    name = family = "testthat"
    folder = "tests/testthat"

    def detect(self, project: Project) -> Iterator[Target]:
        found = project.named(f"**/{self.folder}/test*.R", f"**/{self.folder}/test*.r")
        for root in dict.fromkeys(root_of(root_of(root_of(path))) for path in found):
            if project.has(*under(root, "DESCRIPTION")):
                yield Target(
                    runner=self.name,
                    command=["Rscript", "-e", "testthat::test_local()"],
                    root=root,
                    language="r",
                    tests=under(root, "tests/**"),
                    sources=under(root, "R/**", "src/**"),
                    protected=under(root, "DESCRIPTION"),
                    why=f"there are {PurePosixPath(*under(root, self.folder))}/test*.R files",
                    strength=Strength.CONFIG,
                )

    def recognises(self, words: list[str]) -> bool:
        return any("testthat" in word for word in words)

    def launch(self, target: Target, session: Session) -> list[Step]:
        files = dict.fromkeys(PurePosixPath(test.file or test.id.partition("::")[0]).name for test in session.only)
        shim = str(SHIMS / "_ratchet_testthat.R")
        return [Step(argv=["Rscript", shim, self.folder, *files], env=channel_env(session))]

    def parse(self, results: Results) -> Parsed:
        return read_records(results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        name = PurePosixPath(test.file or test.id.partition("::")[0]).stem.removeprefix("test").lstrip("-_")
        return ["Rscript", "-e", f'testthat::test_local(filter = "^{name}$")']


class Dune(Zig):
    """OCaml: what the programs print that `dune test` runs, all those of a folder: it knows no tests inside of one."""

    name = family = "dune"
    language = "ocaml"
    manifests = ("dune-project",)
    command = ("dune", "test")
    tests = ("**/test/**", "**/tests/**", "**/test_*.ml")
    sources = ("**/*.ml", "**/*.mli")
    text: Parser = staticmethod(parser("dune"))

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            files = project.named(*under(target.root, "**/dune"))
            if any(re.search(r"\(tests?\b|runtest|inline_tests", project.text(path)) for path in files):
                yield target

    def launch(self, target: Target, session: Session) -> list[Step]:
        # What has passed is else not run again, and each library tells but its first failure.
        env = {"OUNIT_VERBOSE": "true", "ALCOTEST_SHOW_ERRORS": "true", "ALCOTEST_COLOR": "never"}
        # A folder is the least that it can be asked for.
        folders = list(dict.fromkeys(root_of(test.file) if test.file else "." for test in session.only))
        return [Step(argv=[*target.command, "--force", *([] if "." in folders else folders)], env=env)]

    def again(self, target: Target, test: TestResult) -> list[str]:
        program = ["dune", "exec", f"./{test.file.removesuffix('.ml')}.exe"]
        if not test.file:
            return target.command
        if "::" in test.id:
            return [*program, "--", "test", test.id.partition("::")[2].partition(" > ")[0]]
        return [*program, "--", "-only-test", test.id] if ":" in test.id else program
