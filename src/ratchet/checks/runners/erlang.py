"""Runners for Erlang with rebar3: EUnit, read from a listener of ours in the variable EUNIT, and Common Test, read
from its log."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ratchet.checks.detect.project import Project, join_root, parent_of
from ratchet.checks.formats import Parsed
from ratchet.checks.protocol import Confidence, LaunchStep, RunOutput, Session, Target
from ratchet.checks.runners import (
    REPORTERS,
    compiler,
    merge_parsed,
    open_log_tail,
    parse_file,
    parse_records,
    parser,
    reporter_env,
)
from ratchet.checks.runners.base import BaseRunner
from ratchet.core.report import TestResult

_suite_log = parser("common_test")


class _Rebar(BaseRunner):
    language = "erlang"
    task = ""
    mark: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        configs = list(project.glob("**/rebar.config"))
        above = [parent_of(path) for path in configs]
        for path in configs:
            root = parent_of(path)
            # The top-level project runs those inside of it.
            inside = any(other != root and (other == "." or root.startswith(f"{other}/")) for other in above)
            if not inside and self._has_tests(project, root):
                yield self._target(root, f"there are {path} and {self.mark[0]}")

    def _has_tests(self, project: Project, root: str) -> bool:
        raise NotImplementedError

    def _target(self, root: str, why: str) -> Target:
        return Target(
            runner=self.name,
            command=["rebar3", self.task],
            root=root,
            language=self.language,
            tests=join_root(root, *self.mark, "**/test/**"),
            sources=join_root(root, "**/*.erl", "**/*.hrl"),
            protected=join_root(root, "rebar.config"),
            setup=["rebar3 get-deps"],
            why=why,
            strength=Confidence.CONFIG,
        )

    def recognises(self, words: list[str]) -> bool:
        return any(word.endswith("rebar3") for word in words) and self.task in words

    def with_compile_errors(self, parsed: Parsed, results: RunOutput) -> Parsed:
        """Add compiler errors, which are only on the console."""
        if results.exit_code and not results.stopped and not parsed.tests and not parsed.running:
            with open_log_tail(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed


class EUnit(_Rebar):
    name = family = task = "eunit"
    mark = ("**/*_tests.erl",)

    def _has_tests(self, project: Project, root: str) -> bool:
        files = project.glob(*join_root(root, "**/*.erl"))
        return any("eunit/include/eunit.hrl" in project.text(path) for path in files)

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        flags = f"{session.env.get('ERL_FLAGS', '')} -pa {session.private}".strip()
        env = reporter_env(session) | {"ERL_FLAGS": flags, "EUNIT": "{report,{'_ratchet_eunit',[]}}"}
        return [
            LaunchStep(argv=["erlc", "-o", str(session.private), str(REPORTERS / "_ratchet_eunit.erl")]),
            LaunchStep(argv=[*target.command, *_chosen(session.only)], env=env, needs_success=True),
        ]

    def parse(self, results: RunOutput) -> Parsed:
        return self.with_compile_errors(parse_records(results), results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *_chosen([test])]


def _chosen(tests: list[TestResult]) -> list[str]:
    """Select by module and function: the tests of a generator have no names of their own."""
    own = dict.fromkeys(_function(test.id) for test in tests)
    kinds = {"--generator": [name for name in own if name.endswith("_")]}
    kinds["--module"] = [name for name in own if ":" not in name]
    kinds["--test"] = [name for name in own if ":" in name and not name.endswith("_")]
    return [f"{option}={','.join(names)}" for option, names in kinds.items() if names]


def _function(name: str) -> str:
    if name.endswith(".erl"):
        return name.rpartition("/")[2].removesuffix(".erl")
    return name.partition("/")[0].partition("#")[0]


class CommonTest(_Rebar):
    name = family = "common_test"
    task = "ct"
    mark = ("**/*_SUITE.erl",)

    def _has_tests(self, project: Project, root: str) -> bool:
        return any(project.glob(*join_root(root, "**/*_SUITE.erl")))

    def launch(self, target: Target, session: Session) -> list[LaunchStep]:
        logs = session.private / "logs"
        logs.mkdir(exist_ok=True)
        return [LaunchStep(argv=[*target.command, f"--logdir={logs}", *_cases(session.only)])]

    def parse(self, results: RunOutput) -> Parsed:
        """Parse one log for each folder of suites. A suite is located by its name, the only one in the log."""
        logs = sorted((results.private / "logs").rglob("suite.log"))
        parsed = merge_parsed(parse_file(path, _suite_log) for path in logs) if logs else Parsed(ended=False)
        project = Project(results.folder)
        files = {path.rpartition("/")[2].removesuffix(".erl"): path for path in project.glob("**/*_SUITE.erl")}
        parsed.tests = [
            msgspec.structs.replace(test, file=files.get(test.suite[0], "") if test.suite else "")
            for test in parsed.tests
        ]
        return self.with_compile_errors(parsed, results)

    def rerun_command(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *_cases([test])]


def _cases(tests: list[TestResult]) -> list[str]:
    """Return suites, with groups and cases if there is only one suite: otherwise each would be searched in every
    suite."""
    parts = [_parts(test.id) for test in tests]
    suites = list(dict.fromkeys(suite for suite, _, _ in parts))
    groups = list(dict.fromkeys(group for _, group, _ in parts if group))
    cases = list(dict.fromkeys(case for _, _, case in parts if case))
    alone = len(suites) == 1 and (len(groups) == 0 or all(group == groups[0] for _, group, _ in parts))
    chosen = [f"--group={','.join(groups)}"] if alone and groups else []
    chosen += [f"--case={','.join(cases)}"] if alone and cases else []
    return [f"--suite={','.join(suites)}", *chosen] if suites else []


def _parts(name: str) -> tuple[str, str, str]:
    """Return suite, innermost group and case."""
    suite, _, path = name.removesuffix(".erl").rpartition("/" if name.endswith(".erl") else "\0")[2].partition(":")
    groups, _, case = path.partition("#")[0].rstrip().rpartition("/")
    return suite, groups.rpartition("/")[2], case
