"""Gives accepted tests bodies that must fail, under their own names: a fake that spares canaries does not see them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath

import msgspec

from ratchet.core.failing_tests import JAVASCRIPT, FailingTests, go, python, with_failing_tests
from ratchet.core.report import RED, Report, TestResult, TestStatus
from ratchet.engine.steps.canaries import rewrite
from ratchet.engine.steps.context import abbreviate
from ratchet.tree_files import find_inside, is_file_inside, open_inside, read_inside

_FILES_MAX = 200
_COMPILED_FROM = {".js": (".ts", ".tsx"), ".mjs": (".mts",), ".cjs": (".cts",)}


class FailingBodies(msgspec.Struct, frozen=True, kw_only=True):
    """The tests whose bodies must fail: in Python by id without parameters, in other languages by file."""

    files: frozenset[str]
    ids: frozenset[str] = frozenset()
    scripts: dict[str, FailingTests] = {}

    def __bool__(self) -> bool:
        return bool(self.ids or self.scripts)

    def must_fail(self, test: TestResult) -> bool:
        script = self.scripts.get(test.file)
        return script.must_fail(test.suite, test.name) if script else _plain_id(test) in self.ids

    def why_faked(
        self, accepted: Report, report: Report, is_test: Callable[[str], bool], new: Collection[str] = ()
    ) -> str:
        """Return why the results cannot be trusted; empty when none of these tests has passed.

        `accepted` is the report of the same tests with their own bodies, `new` the ids of those that the run has added.
        """
        # Two scripted tests may have one name, of which only one was rewritten.
        failed = {_path(test) for test in report.tests if test.status in RED and test.file in self.scripts}
        before = {_path(test) for test in accepted.tests}
        passed = [
            test.id
            for test in report.tests
            if test.status is TestStatus.PASSED
            and _path(test) not in failed
            and (self.must_fail(test) or (self._is_elsewhere(test, is_test, new) and self._is_moved(test, before)))
        ]
        return f"tests passed whose bodies fail: {abbreviate(passed)}: the results are faked" if passed else ""

    def _is_elsewhere(self, test: TestResult, is_test: Callable[[str], bool], new: Collection[str]) -> bool:
        """Whether a test is reported under a file that cannot hold it.

        Some runners of JavaScript take the file from the stack, where a wrapper around their functions stands; a fake
        may name any.
        """
        if test.id in new:
            return test.file not in self.files
        return test.file.rpartition(".")[2] in JAVASCRIPT and not is_test(test.file)

    def _is_moved(self, test: TestResult, before: set[tuple[str, ...]]) -> bool:
        """Whether this is a test that must fail, which its own file has not reported."""
        return any(
            script.must_fail(test.suite, test.name) and (file, *test.suite, test.name) not in before
            for file, script in self.scripts.items()
        )

    def count(self, accepted: Report, report: Report) -> tuple[int, int]:
        """Count the tests that passed with their own bodies: how many failed with the others, and how many did not."""
        failed = {_id_of_body(test) for test in report.tests if test.status in RED and self.must_fail(test)}
        passed = [test for test in accepted.tests if test.status is TestStatus.PASSED and test.file in self.files]
        checked = sum(_id_of_body(test) in failed or _outer_id(test) in failed for test in passed)
        return checked, len(passed) - checked


def add_failing_bodies(folder: Path, files: Iterable[str], *, run: bool = False) -> FailingBodies:
    """Make the tests of these files fail, as far as their language is known and it can be done for certain.

    They fail at once; with `run`, in Python, JavaScript and TypeScript after their own bodies.
    """
    files = sorted(files)
    ids: set[str] = set()
    scripts: dict[str, FailingTests] = {}
    for path in files[:_FILES_MAX]:
        if path.endswith(".py"):
            ids |= {f"{path}::{name}" for name in _add_to_python(folder, path, run=run)}
        elif not _is_compiled(folder, path) and (script := _add_to_script(folder, path, run=run)):
            scripts[path] = script
    _doubt_namesakes(folder, scripts)
    return FailingBodies(files=frozenset(files), ids=frozenset(ids), scripts=scripts)


def _add_to_python(folder: Path, path: str, *, run: bool) -> set[str]:
    names, token = set[str](), f"c{secrets.token_hex(6)}"

    def write(name: str, text: str) -> str:
        changed = python.with_failing_bodies(name, text, token=token if run else "")
        if changed:
            names.update(python.names_of_tests(text))
        return changed

    return names if rewrite(folder, path, write) else set()


def _add_to_script(folder: Path, path: str, *, run: bool) -> FailingTests | None:
    found: list[FailingTests] = []

    def write(_name: str, text: str) -> str:
        changed, tests = with_failing_tests(path, text, run=run) or ("", None)
        found.extend([tests] if tests else [])
        return changed

    if not rewrite(folder, path, write):
        return None
    _date_later(folder, path)
    return found[0]


def _date_later(folder: Path, path: str) -> None:
    """Have build tools see the change: some compare the times of files to the second."""
    later = time.time() + 2
    with open_inside(folder, path, os.O_WRONLY) as file:
        os.utime(file, (later, later))


def _doubt_namesakes(folder: Path, scripts: dict[str, FailingTests]) -> None:
    """Leave Go tests out whose name another file of the folder has too: only the build knows which of them runs."""
    for inside in {PurePosixPath(path).parent for path in scripts if path.endswith(".go")}:
        beside = [str(inside / name) for name in find_inside(folder, inside.name and str(inside)) if "/" not in name]
        texts = [read_inside(folder, path) or b"" for path in beside if path.endswith(".go") and path not in scripts]
        doubtful = {name: [[[name]]] for text in texts for name in go.names_of_tests(text.decode(errors="replace"))}
        for path, tests in scripts.items():
            if path.endswith(".go") and PurePosixPath(path).parent == inside:
                scripts[path] = msgspec.structs.replace(tests, doubtful=doubtful)


def _is_compiled(folder: Path, path: str) -> bool:
    """Whether a script has a source beside it, from which the run may make it anew."""
    whole = Path(path)
    return any(is_file_inside(folder, str(whole.with_suffix(of))) for of in _COMPILED_FROM.get(whole.suffix, ()))


def _path(test: TestResult) -> tuple[str, ...]:
    return (test.file, *test.suite, test.name)


def _id_of_body(test: TestResult) -> str:
    """Return the id without parameters in Python: a body that expects other values may have others."""
    return _plain_id(test) if test.file.endswith(".py") else test.id


def _outer_id(test: TestResult) -> str:
    """Return the id of the Go test that runs a subtest: a test that fails at once runs none."""
    inner = test.name.partition("/")[2]
    return test.id.removesuffix(f"/{inner}") if inner and test.file.endswith(".go") else test.id


def _plain_id(test: TestResult) -> str:
    """Return the id without parameters, as pytest writes it: unittest's has dots."""
    plain = test.id.partition("[")[0]
    if "::" in plain or not test.file.endswith(".py"):
        return plain
    module = test.file.removesuffix(".py").replace("/", ".")
    return f"{test.file}::{plain.removeprefix(f'{module}.').replace('.', '::')}"
