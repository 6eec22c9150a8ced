"""Rust: cargo's own test run with libtest's JSON, documentation tests as text, and nextest by JUnit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import Usual, joined, junit, parser, read
from ratchet.core.report import TestResult

_cargo = parser("cargo")

_EVENTS, _DOCS = "libtest.json", "doctest.txt"
# The JSON of libtest is unstable. Only the test programs are told that they may: the build stays as it was.
_BOOTSTRAP = 'target."cfg(all())".runner=["env", "RUSTC_BOOTSTRAP=1"]'


class Cargo(Usual):
    name = "cargo"
    family = "rust"
    strength = Strength.CONFIG

    def detect(self, project: Project) -> Iterator[Target]:
        members: list[str] = []
        for path in project.named("**/Cargo.toml"):
            root, table = root_of(path), project.toml(path)
            if any(root != above and (above == "." or root.startswith(f"{above}/")) for above in members):
                continue  # a member: the workspace above runs it
            if "workspace" in table:
                members.append(root)
            yield Target(
                runner=self.name,
                command=self.command(workspace="workspace" in table),
                root=root,
                language="rust",
                tests=under(root, "**/tests/**", "**/benches/**"),
                sources=under(root, "**/*.rs"),
                protected=under(root, ".cargo/**"),
                setup=["cargo fetch"],
                why=f"there is a {path}",
                strength=self.strength,
            )

    def command(self, *, workspace: bool) -> list[str]:
        return ["cargo", "test", *(["--workspace"] if workspace else [])]

    def recognises(self, words: list[str]) -> bool:
        return [Path(word).name for word in words[:2]] == ["cargo", "test"]

    def launch(self, target: Target, session: Session) -> list[Step]:
        words, ours = _before_dashes(target.command)
        packages = [test for test in session.only if test.id == test.file]
        words = _of_packages(words, [test.name for test in packages])
        names = [test.id for test in session.only if test.id != test.file]
        exact = [*names, "--exact"] if names else []
        build = ["--no-fail-fast", "--message-format=json", "--config", _BOOTSTRAP]
        libtest = ["--", "-Z", "unstable-options", "--format=json", "--report-time", *ours, *exact]
        steps = [Step(argv=[*words, "--tests", *build, *libtest], channel=_EVENTS)]
        folders = [session.folder / root_of(test.file) for test in packages] or [session.folder]
        if not names and any(map(_has_library, folders)):
            docs = [*words, "--doc", "--no-fail-fast", *(["--", *ours] if ours else [])]
            steps.append(Step(argv=docs, channel=_DOCS))
        return steps

    def parse(self, results: Results) -> Parsed:
        found = [read(results.private / _EVENTS, _cargo)]
        # Documentation is not tested when the build failed or time ran out: then there is one channel, and it decides.
        if (results.private / _DOCS).exists() and not found[0].compile_errors:
            found.append(read(results.private / _DOCS, _cargo))
        whole = joined(found)
        whole.tests = [_without_backtrace(test) for test in whole.tests]
        return whole

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, test.id, "--", "--exact"]


def _without_backtrace(test: TestResult) -> TestResult:
    """The backtrace has been read into frames."""
    said, found, _ = test.stdout.partition("stack backtrace:")
    return msgspec.structs.replace(test, stdout=said) if found else test


def _before_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at + 1 :]


def _of_packages(words: list[str], names: list[str]) -> list[str]:
    """The command for these packages alone."""
    if not names:
        return words
    return [*(word for word in words if word not in {"--workspace", "--all"}), *(f"--package={name}" for name in names)]


def _has_library(folder: Path) -> bool:
    if (folder / "src" / "lib.rs").exists():
        return True
    manifests = [folder / "Cargo.toml", *folder.glob("*/Cargo.toml"), *folder.glob("*/*/Cargo.toml")]
    return any(
        (path.parent / "src" / "lib.rs").exists() or "[lib]" in path.read_text("utf-8", "replace")
        for path in manifests
        if path.exists()
    )


class Nextest(Cargo):
    """Where the project configures it. Its JUnit file needs a profile, which lies outside the project."""

    name = "nextest"
    strength = Strength.ASKED

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            if project.has(*under(target.root, ".config/nextest.toml")):
                yield target

    def command(self, *, workspace: bool) -> list[str]:
        return ["cargo", "nextest", "run", *(["--workspace"] if workspace else [])]

    def recognises(self, words: list[str]) -> bool:
        return "nextest" in words

    def launch(self, target: Target, session: Session) -> list[Step]:
        profile = session.private / "nextest.toml"
        profile.write_text(f"[profile.default.junit]\npath = {str(session.private / 'junit.xml')!r}\n")
        chosen = ["--", "--exact", *[test.name for test in session.only]] if session.only else []
        words = [*target.command, "--no-fail-fast", "--tool-config-file", f"ratchet:{profile}", *chosen]
        return [Step(argv=words)]

    def parse(self, results: Results) -> Parsed:
        return read(results.private / "junit.xml", junit)
