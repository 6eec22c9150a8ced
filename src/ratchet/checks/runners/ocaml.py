"""Runner for OCaml: `dune test`, read from its output."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.protocol import LaunchStep, Session, Target
from ratchet.checks.runners import parser
from ratchet.checks.runners.manifest import TextRunner
from ratchet.core.report import TestResult


class Dune(TextRunner):
    """dune runs every test program of a folder and cannot select tests inside of one."""

    name = family = "dune"
    language = "ocaml"
    manifests = ("dune-project",)
    command = ("dune", "test")
    tests = ("**/test/**", "**/tests/**", "**/test_*.ml")
    sources = ("**/*.ml", "**/*.mli")
    text = staticmethod(parser("dune"))

    def detect(self, project: Project) -> Iterator[Target]:
        for target in super().detect(project):
            files = project.glob(*join_root(target.root, "**/dune"))
            if any(re.search(r"\(tests?\b|runtest|inline_tests", project.text(path)) for path in files):
                yield target

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        # Without `--force` dune skips what has passed, and by default each library prints only its first failure.
        env = {"OUNIT_VERBOSE": "true", "ALCOTEST_SHOW_ERRORS": "true", "ALCOTEST_COLOR": "never"}
        # A folder is the smallest unit that dune can select.
        folders = list(dict.fromkeys(parent_of(test.file) if test.file else "." for test in session.only))
        return [LaunchStep(argv=[*target.command, "--force", *([] if "." in folders else folders)], env=env)]

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        program = ["dune", "exec", f"./{test.file.removesuffix('.ml')}.exe"]
        if not test.file:
            return target.command
        if "::" in test.id:
            return [*program, "--", "test", test.id.partition("::")[2].partition(" > ")[0]]
        return [*program, "--", "-only-test", test.id] if ":" in test.id else program
