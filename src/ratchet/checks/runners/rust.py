"""Runners for Rust: `cargo test` with libtest's JSON, documentation tests as text, and nextest by JUnit."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.run.missing_tests import RUST_TEST
from ratchet.checks.runners import junit, merge_parsed, parse_file, parser
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult
from ratchet.tree_files import read_anywhere, read_source

_cargo = parser("cargo")

_EVENTS, _DOCS = "libtest{}.json", "doctest.txt"
_OURS = ["-Z", "unstable-options", "--format=json", "--report-time"]
# libtest's JSON is unstable. Only the test programs get the flag, so the build stays the same; programs without libtest
# get nothing.
_START = """program=$1; shift
printf '{"reason":"ratchet-started","executable":"%s","apart":APART}\\n' "$program"
case "$CARGO_PKG_NAME/${program##*/}" in
PLAIN) shift OURS ;;
*) export RUSTC_BOOTSTRAP=1 ;;
esac
RUNNER"$program" "$@"
code=$?
printf '\\n{"reason":"ratchet-ended","code":%d}\\n' $code
exit $code
"""
_DOC = re.compile(r"\S+\.(?:rs|md) - .*\(line (\d+)\).*")
_PROGRAM = re.compile(r"(?P<package>[\w-]+)(?:::(?:(?P<kind>bin|example|bench)/)?(?P<target>[\w-]+))?")


class Cargo(BaseRunner):
    name = "cargo"
    family = "rust"
    strength = Confidence.CONFIG

    def detect(self, project: Project) -> Iterator[Target]:
        members: list[str] = []
        for path in project.glob("**/Cargo.toml"):
            root, table = parent_of(path), project.toml(path)
            if any(root != above and (above == "." or root.startswith(f"{above}/")) for above in members):
                continue  # a member: the workspace above runs it
            if "workspace" in table:
                members.append(root)
            yield Target(
                runner=self.name,
                command=self.command(workspace="workspace" in table),
                root=root,
                language="rust",
                tests=join_root(root, "**/tests/**", "**/benches/**"),
                sources=join_root(root, "**/*.rs"),
                protected=join_root(root, ".cargo/**"),
                setup=["cargo fetch"],
                why=f"there is a {path}",
                strength=self.strength,
            )

    def command(self, *, workspace: bool) -> list[str]:
        return ["cargo", "test", *(["--workspace"] if workspace else [])]

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[:2]] == ["cargo", "test"]

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        words, ours = _before_dashes(target.command)
        packages = [test for test in session.only if test.file.endswith("Cargo.toml")]
        tests = [test for test in session.only if not _DOC.fullmatch(test.id) and test not in packages]
        docs = [test.id for test in session.only if _DOC.fullmatch(test.id)]
        whole = not tests and not docs
        words = _of_packages(words, [test.name for test in packages])
        manifests = _Manifests(session.folder)
        starting = _starting(target, session, manifests)
        settings = [word for setting in starting.settings for word in ("--config", setting)]
        build = ["--no-fail-fast", "--message-format=json", *settings]
        groups = {("--tests",): []} if whole else _by_program(tests, manifests, apart=_is_apart(target))
        steps = [
            LaunchStep(
                argv=[*_beside(words, which), *which, *build, "--", *_OURS, *ours, *_exactly(names)],
                env=starting.env,
                channel=_EVENTS.format(number or ""),
            )
            for number, (which, names) in enumerate(groups.items())
        ]
        folders = [session.folder / parent_of(test.file) for test in packages] or [session.folder]
        if docs or (whole and any(map(_has_library, folders))):
            more = [*ours, *map(_line_word, docs)]
            steps.append(
                LaunchStep(argv=[*words, "--doc", "--no-fail-fast", *(["--", *more] if more else [])], channel=_DOCS)
            )
        return steps

    def parse(self, results: RunOutput) -> Parsed:
        found = [parse_file(path, _cargo) for path in sorted(results.private.glob(_EVENTS.format("*")))]
        # Documentation is not tested if the build failed or timed out: then the only channel decides.
        if (results.private / _DOCS).exists() and not any(part.compile_errors for part in found):
            found.append(parse_file(results.private / _DOCS, _cargo))
        whole = merge_parsed(found) if found else Parsed(ended=False)
        whole.tests = [_without_backtrace(test) for test in whole.tests]
        if any(test.failure and not test.failure.file for test in whole.tests):
            places = _Places(results.folder)
            whole.tests = [places.placed(test) for test in whole.tests]
        return whole

    def locate(self, test: TestResult, folder: Path) -> TestResult:
        """Locate a test that never finished, by its id."""
        program, space, name = test.id.partition(" ")
        known = space and program.partition("::")[0] in _Manifests(folder).packages
        suite = [program, *name.split("::")[:-1]] if known else test.id.split("::")[:-1]
        named = msgspec.structs.replace(test, suite=suite, name=test.id.rpartition("::")[2])
        return _Places(folder).placed(named, program if known else "")

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        if _DOC.fullmatch(test.id):
            return [*target.command, "--doc", "--", _line_word(test.id)]
        program, name = _apart(test)
        if not program or test.id == name:
            return [*target.command, test.id, "--", "--exact"]
        which = _program_options(program)
        return [*_beside(target.command, which), *which, *([name, "--", "--exact"] if name else [])]


class _Manifests:
    """The manifests below a folder: the packages, and their test programs without libtest."""

    def __init__(self, folder: Path) -> None:
        project = Project(folder)
        tables = [project.toml(path) for path in project.glob("**/Cargo.toml")]
        packages = [table for table in tables if isinstance(table.get("package"), dict)]
        self.packages = {str(table["package"].get("name", "")) for table in packages}
        self.plain = [
            f"{table['package'].get('name', '')}/{str(part.get('name', '')).replace('-', '_')}-*"
            for table in packages
            for part in _parts(table)
            if part.get("harness") is False
        ]


class _Places:
    """Locates tests: libtest reports locations only for panics."""

    def __init__(self, folder: Path) -> None:
        project = Project(folder)
        tables = {parent_of(path): project.toml(path).get("package", {}) for path in project.glob("**/Cargo.toml")}
        self.folders = {str(table.get("name", "")): root for root, table in tables.items() if table}
        self.project = project

    def placed(self, test: TestResult, program: str = "") -> TestResult:
        if not test.failure or test.failure.file:
            return test
        found = list(self._written(test.name.rpartition(" ")[2], program or (test.suite or [""])[0]))
        if len(found) != 1:
            return test
        ((file, line),) = found
        failure = msgspec.structs.replace(test.failure, file=file, line=line)
        return msgspec.structs.replace(test, file=file, line=line, failure=failure)

    def _written(self, name: str, program: str) -> Iterator[tuple[str, int]]:
        package, _, target = program.partition("::")
        inside = join_root(
            self.folders.get(package, "."), f"tests/{target}" if target and "/" not in target else "src"
        )[0]
        for path in self.project.glob("**/*.rs"):
            if package in self.folders and not path.startswith((f"{inside}/", f"{inside}.rs")):
                continue
            text = self.project.text(path)
            starts = (match.start(1) for match in RUST_TEST.finditer(text) if match.group(1) == name)
            yield from ((path, text.count("\n", 0, start) + 1) for start in starts)


def _parts(table: dict[str, Any]) -> list[dict[str, Any]]:
    package = str(table["package"].get("name", ""))
    lists = [table.get(kind, []) for kind in ("test", "bin", "example", "bench")]
    found = [part for parts in lists if isinstance(parts, list) for part in parts]
    library = table.get("lib", {})
    found.append({"name": package} | library if isinstance(library, dict) else {})
    return [part for part in found if isinstance(part, dict)]


class _Starting(msgspec.Struct, kw_only=True):
    """The settings and variables that make cargo start every test program through our script."""

    settings: list[str] = []
    env: dict[str, str] = {}


def _starting(target: Target, session: Session, manifests: _Manifests) -> _Starting:
    """Make our script start the test programs, and the project's own runner inside of it.

    Cargo prefers a setting for a target over one for a `cfg`, and rejects two matching `cfg`s. The value must have the
    type of the existing one; where cargo merges two lists, the project's runner is started twice.
    """
    plain = "|".join(shlex.quote(name).replace("-*'", "-'*") for name in manifests.plain) or "-"
    text = _START.replace("APART", "true" if _is_apart(target) else "false").replace("PLAIN", plain)
    text = text.replace("OURS", str(len(_OURS)))
    own = _own_runners(session)
    machines = {_variable(key): words for key, (_, words) in own.items() if not key.startswith("cfg(")}
    machines |= {name: value.split() for name, value in session.env.items() if _BY_ENV.fullmatch(name)}
    cfgs = {key: value for key, value in own.items() if key.startswith("cfg(")}
    rest = f"not(any({', '.join(key[4:-1] for key in cfgs)}))" if cfgs else "all()"
    cfgs[f"cfg({rest})"] = (False, [])
    scripts = {key: str(_script(session, f"start{n}", text, words)) for n, (key, (_, words)) in enumerate(cfgs.items())}
    return _Starting(
        settings=[
            _setting(key, f"sh {scripts[key]}" if is_text else ["sh", scripts[key]])
            for key, (is_text, _) in cfgs.items()
        ],
        env={name: f"sh {_script(session, name, text, words)}" for name, words in machines.items()},
    )


def _setting(key: str, value: str | list[str]) -> str:
    """Format a TOML setting; its strings and lists are written as in JSON."""
    return f"target.{json.dumps(key)}.runner={json.dumps(value)}"


_BY_ENV = re.compile(r"CARGO_TARGET_\w+_RUNNER")


def _variable(key: str) -> str:
    return f"CARGO_TARGET_{re.sub(r'[-.]', '_', key).upper()}_RUNNER"


def _script(session: Session, name: str, text: str, words: list[str]) -> Path:
    path = session.private / name
    path.write_text(text.replace("RUNNER", f"{shlex.join(words)} " if words else ""))
    return path


def _own_runners(session: Session) -> dict[str, tuple[bool, list[str]]]:
    """Yield the runners configured in cargo's files, nearest first: whether it is a string, and its words."""
    home = Path(session.env.get("CARGO_HOME") or Path(session.env.get("HOME", "/")) / ".cargo")
    places = [*(folder / ".cargo" for folder in (session.folder, *session.folder.parents)), home]
    found: dict[str, tuple[bool, list[str]]] = {}
    for place in places:
        for key, table in _settings(place).items():
            value = table.get("runner") if isinstance(table, dict) else None
            words = value.split() if isinstance(value, str) else list(map(str, value or []))
            if words:
                found.setdefault(key, (isinstance(value, str), [_program(words[0], place.parent), *words[1:]]))
    return found


def _program(word: str, folder: Path) -> str:
    """Resolve a path against the folder of the settings, not that of the test."""
    return str(folder / word) if "/" in word else word


def _settings(place: Path) -> dict[str, Any]:
    for path in (place / "config", place / "config.toml"):
        try:
            table = tomllib.loads(read_anywhere(path).decode()).get("target")
        except (OSError, ValueError, RecursionError):
            continue
        return table if isinstance(table, dict) else {}
    return {}


def _is_apart(target: Target) -> bool:
    """Return whether tests of several packages may share a name: then every id begins with the program."""
    return "--workspace" in target.command or "--all" in target.command


def _apart(test: TestResult) -> tuple[str, str]:
    """Split an id into program and test name; a program that is one test has no name."""
    program = test.suite[0] if test.suite else ""
    if program and test.id == program:
        return program, ""
    return program, test.id.removeprefix(f"{program} ")


def _by_program(tests: list[TestResult], manifests: _Manifests, *, apart: bool) -> dict[tuple[str, ...], list[str]]:
    """Group test names by the options that select their program; for a program that is a test, no names."""
    found: dict[tuple[str, ...], list[str]] = {}
    for test in tests:
        program, name = (
            _apart(test) if test.suite else test.id.split(" ", 1) if _is_typed(test, apart) else ("", test.id)
        )
        known = (match := _PROGRAM.fullmatch(program)) and match.group("package") in manifests.packages
        found.setdefault(_program_options(program) if known else ("--tests",), []).extend([name] if name else [])
    return found


def _is_typed(test: TestResult, apart: bool) -> bool:
    return apart and " " in test.id


def _program_options(program: str) -> tuple[str, ...]:
    found = _PROGRAM.fullmatch(program)
    if not found:
        return ("--tests",)
    one = ("--lib",) if not found.group("target") else (f"--{found.group('kind') or 'test'}", found.group("target"))
    return ("--package", found.group("package"), *one)


def _beside(words: list[str], which: tuple[str, ...]) -> list[str]:
    """Remove words that conflict with selecting a package."""
    return [word for word in words if word not in {"--workspace", "--all"}] if "--package" in which else words


def _line_word(name: str) -> str:
    """Return one word of the name: rustdoc splits its argument at spaces and runs all examples that contain one of
    the words."""
    found = _DOC.fullmatch(name)
    return f"{found.group(1)})" if found else name


def _exactly(names: list[str]) -> list[str]:
    return [*names, "--exact"] if names else []


def _without_backtrace(test: TestResult) -> TestResult:
    """Remove the backtrace, which has been parsed into frames."""
    output, found, _ = test.stdout.partition("stack backtrace:")
    return msgspec.structs.replace(test, stdout=output) if found else test


def _before_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _of_packages(words: list[str], names: list[str]) -> list[str]:
    """Restrict the command to these packages."""
    if not names:
        return words
    return [*(word for word in words if word not in {"--workspace", "--all"}), *(f"--package={name}" for name in names)]


def _has_library(folder: Path) -> bool:
    if (folder / "src" / "lib.rs").exists():
        return True
    manifests = [folder / "Cargo.toml", *folder.glob("*/Cargo.toml"), *folder.glob("*/*/Cargo.toml")]
    return any(
        (path.parent / "src" / "lib.rs").exists() or "[lib]" in read_source(folder, str(path)) for path in manifests
    )


class Nextest(Cargo):
    """Runner for nextest, if the project configures it. Its JUnit file needs a profile, which is stored outside the
    project."""

    name = "nextest"
    strength = Confidence.ASKED

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            if project.has(*join_root(target.root, ".config/nextest.toml")):
                yield target

    def command(self, *, workspace: bool) -> list[str]:
        return ["cargo", "nextest", "run", *(["--workspace"] if workspace else [])]

    def recognises(self, words: list[str]) -> bool:
        return "nextest" in words

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        profile = session.private / "nextest.toml"
        profile.write_text(f"[profile.default.junit]\npath = {str(session.private / 'junit.xml')!r}\n")
        chosen = ["--", "--exact", *[test.name for test in session.only]] if session.only else []
        words = [*target.command, "--no-fail-fast", "--tool-config-file", f"ratchet:{profile}", *chosen]
        return [LaunchStep(argv=words)]

    def parse(self, results: RunOutput) -> Parsed:
        return parse_file(results.private / "junit.xml", junit)
