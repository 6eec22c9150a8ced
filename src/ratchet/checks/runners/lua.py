"""Runner for Lua: busted, read from its JUnit file or our reporter."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from ratchet.checks.detect.project import Project, join_root
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    REPORTERS,
    junit,
    parse_file,
    parse_records,
    reporter_env,
)
from ratchet.checks.runners.manifest import ManifestRunner
from ratchet.core.report import Diagnostic, TestResult


class Busted(ManifestRunner):
    """busted writes its JUnit file at the end; if it died before, the records of our reporter are read."""

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
                target, root=root, tests=join_root(root, *self.tests), sources=join_root(root, *self.sources)
            )

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        output = ["-o", str(REPORTERS / "_ratchet_busted.lua"), f"-Xoutput={session.private / 'junit.xml'}"]
        parts = [(test.file, test.name) if test.name else test.id.split("::", 1) for test in session.only]
        names = [f"--filter={_lua_pattern(name)}$" for _, *rest in parts for name in rest if name]
        files = list(dict.fromkeys(file for file, *_ in parts if file))
        return [LaunchStep(argv=[*target.command, *output, *names, *files], env=reporter_env(session))]

    def parse(self, results: RunOutput) -> Parsed:
        if not (results.private / "junit.xml").exists():
            return parse_records(results)
        parsed = parse_file(results.private / "junit.xml", junit)
        parsed.collection_errors = [_with_location(error) for error in parsed.collection_errors]
        return parsed

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, f"--filter={_lua_pattern(test.name)}$", *([test.file] if test.file else [])]


_LOCATION = re.compile(r"(?P<file>\S+?\.lua):(?P<line>\d{1,9}): (?P<message>.*?)(?:\nstack traceback:.*)?", re.S)


def _with_location(error: Diagnostic) -> Diagnostic:
    """Take the location from the message: busted reports errors outside of tests without one."""
    found = _LOCATION.fullmatch(error.message.strip()) if not error.line else None
    if not found:
        return error
    return msgspec.structs.replace(error, file=found["file"], line=int(found["line"]), message=found["message"])


def _lua_pattern(name: str) -> str:
    return "".join(f"%{c}" if c in "^$()%.[]*+-?" else c for c in name)
