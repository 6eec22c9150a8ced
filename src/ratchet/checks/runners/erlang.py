"""Erlang by rebar3: EUnit by a listener of ours that the variable EUNIT names, Common Test by its own log."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ratchet.checks import Results, Session, Step, Strength, Target
from ratchet.checks.formats import Parsed
from ratchet.checks.project import Project, root_of, under
from ratchet.checks.runners import SHIMS, Usual, channel_env, compiler, end_of, joined, parser, read, read_records
from ratchet.core.report import TestResult

_suite_log = parser("common_test")


class _Rebar(Usual):
    language = "erlang"
    task = ""
    mark: tuple[str, ...] = ()

    def detect(self, project: Project) -> Iterator[Target]:
        configs = list(project.named("**/rebar.config"))
        above = [root_of(path) for path in configs]
        for path in configs:
            root = root_of(path)
            # The project at the top runs those that lie in it.
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
            tests=under(root, *self.mark, "**/test/**"),
            sources=under(root, "**/*.erl", "**/*.hrl"),
            protected=under(root, "rebar.config"),
            setup=["rebar3 get-deps"],
            why=why,
            strength=Strength.CONFIG,
        )

    def recognises(self, words: list[str]) -> bool:
        return any(word.endswith("rebar3") for word in words) and self.task in words

    def explained(self, parsed: Parsed, results: Results) -> Parsed:
        """What does not compile is told on the console only."""
        if results.exit_code and not results.stopped and not parsed.tests and not parsed.running:
            with end_of(results) as stream:
                parsed.compile_errors = compiler(stream).compile_errors
            parsed.ended = parsed.ended or bool(parsed.compile_errors)
        return parsed


class EUnit(_Rebar):
    name = family = task = "eunit"
    mark = ("**/*_tests.erl",)

    def _has_tests(self, project: Project, root: str) -> bool:
        files = project.named(*under(root, "**/*.erl"))
        return any("eunit/include/eunit.hrl" in project.text(path) for path in files)

    def launch(self, target: Target, session: Session) -> list[Step]:
        flags = f"{session.env.get('ERL_FLAGS', '')} -pa {session.private}".strip()
        env = channel_env(session) | {"ERL_FLAGS": flags, "EUNIT": "{report,{'_ratchet_eunit',[]}}"}
        return [
            Step(argv=["erlc", "-o", str(session.private), str(SHIMS / "_ratchet_eunit.erl")]),
            Step(argv=[*target.command, *_chosen(session.only)], env=env, needs=True),
        ]

    def parse(self, results: Results) -> Parsed:
        return self.explained(read_records(results), results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *_chosen([test])]


def _chosen(tests: list[TestResult]) -> list[str]:
    """By module and function: of a generator's tests all are run, for there is no name for one."""
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
        return any(project.named(*under(root, "**/*_SUITE.erl")))

    def launch(self, target: Target, session: Session) -> list[Step]:
        logs = session.private / "logs"
        logs.mkdir(exist_ok=True)
        return [Step(argv=[*target.command, f"--logdir={logs}", *_cases(session.only)])]

    def parse(self, results: Results) -> Parsed:
        """One log for each folder of suites. A suite is found by its name: the log knows none but that."""
        logs = sorted((results.private / "logs").rglob("suite.log"))
        parsed = joined(read(path, _suite_log) for path in logs) if logs else Parsed(ended=False)
        project = Project(results.folder)
        files = {path.rpartition("/")[2].removesuffix(".erl"): path for path in project.named("**/*_SUITE.erl")}
        parsed.tests = [
            msgspec.structs.replace(test, file=files.get(test.suite[0], "") if test.suite else "")
            for test in parsed.tests
        ]
        return self.explained(parsed, results)

    def again(self, target: Target, test: TestResult) -> list[str]:
        return [*target.command, *_cases([test])]


def _cases(tests: list[TestResult]) -> list[str]:
    """Suites, and their groups and cases where there is one suite: else each would be looked for in every suite."""
    parts = [_parts(test.id) for test in tests]
    suites = list(dict.fromkeys(suite for suite, _, _ in parts))
    groups = list(dict.fromkeys(group for _, group, _ in parts if group))
    cases = list(dict.fromkeys(case for _, _, case in parts if case))
    alone = len(suites) == 1 and (len(groups) == 0 or all(group == groups[0] for _, group, _ in parts))
    chosen = [f"--group={','.join(groups)}"] if alone and groups else []
    chosen += [f"--case={','.join(cases)}"] if alone and cases else []
    return [f"--suite={','.join(suites)}", *chosen] if suites else []


def _parts(name: str) -> tuple[str, str, str]:
    """Suite, innermost group, case."""
    suite, _, path = name.removesuffix(".erl").rpartition("/" if name.endswith(".erl") else "\0")[2].partition(":")
    groups, _, case = path.partition("#")[0].rstrip().rpartition("/")
    return suite, groups.rpartition("/")[2], case
