"""Which test files there are, whatever a run says of them: a file whose tests silently vanished is never a pass.

Two sources: what a runner takes by its own defaults, where the project says nothing else; and what earlier runs found,
kept by whoever has a place for it. A file counts while it is there and holds something that looks like a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from ratchet.checks import Target
from ratchet.checks.project import Project, root_of
from ratchet.core.report import Report, ReportStatus, TestStatus, broken
from ratchet.core.roles import matches

_SCRIPT = re.compile(r"(?m)^\s*(?:test|it|describe|suite|Deno\.test)(?:\.\w+)*\s*[(`]")
_MARKS = {
    ".py": re.compile(r"(?m)^\s*(?:async\s+)?def test|^\s*class Test|TestCase\)"),
    ".go": re.compile(r"(?m)^func Test[^a-z]"),
    ".rs": re.compile(r"(?m)^\s*#\[(?:\w+::)*test\b"),
    ".rb": re.compile(r"(?m)^\s*(?:it|specify|example|def test_|test)\b"),
    ".bats": re.compile(r"(?m)^\s*@test\b"),
    ".php": re.compile(r"function test|@test\b|#\[Test\b"),
    ".exs": re.compile(r"(?m)^\s*test\b"),
    ".t": re.compile(r"(?m)^\s*(?:ok|is|like|subtest|is_deeply)\b"),
} | dict.fromkeys((".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"), _SCRIPT)
RUST_TEST = re.compile(r"#\[(?:\w+::)*test\b[^\]]*\](?:\s*#\[[^\]]*\])*\s*(?:pub\s+)?(?:async\s+)?fn\s+(\w+)")
# What each runner takes when nobody tells it otherwise, by which command, and where somebody could have told it.
_SPECS = ["**/*.test.?s", "**/*.spec.?s", "**/*.test.?sx", "**/*.spec.?sx"]
_DEFAULTS = {
    "jest": (["jest"], [*_SPECS, "**/__tests__/**/*.?s"], ["**/jest.config.*"]),
    "vitest": (["vitest", "run"], _SPECS, ["**/vitest.config.*", "**/vite.config.*", "**/vitest.workspace.*"]),
    "mocha": (["mocha"], ["test/*.js", "test/*.cjs", "test/*.mjs"], ["**/.mocharc.*"]),
    "node": (["node", "--test"], ["**/*.test.js", "**/*.test.mjs", "**/*.test.cjs"], []),
    "rspec": (["rspec"], ["spec/**/*_spec.rb"], [".rspec"]),
    "go": (["go", "test", "./..."], ["**/*_test.go"], []),
}


def complete(report: Report, target: Target, project: Project) -> Report:
    """The report of a whole run, which has not passed if files the runner takes by itself left no trace in it."""
    if report.status is not ReportStatus.PASSED or target.runner not in _DEFAULTS:
        return report
    return without(report, missing(report, project, _by_default(target, project)))


def without(report: Report, lost: list[str]) -> Report:
    """The report with this against it. Of a run that was cut off nobody expects all files."""
    if not lost or report.status in (ReportStatus.TIMEOUT, ReportStatus.CRASHED):
        return report
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    note = f"no result came from test files that are there: {', '.join(lost[:3])}{more}"
    passed = report.status is ReportStatus.PASSED
    status = ReportStatus.INCONSISTENT if passed else report.status
    return msgspec.structs.replace(report, status=status, notes=[*report.notes, note])


# Tests that were asked for and not reached are not unknown.
_LOOKED_AT = 5_000
_CUT = {ReportStatus.TIMEOUT, ReportStatus.INTERRUPTED, ReportStatus.ERROR}


# Of a hook there is a result only when it fails: else those of its suite are the answer.
_HOOK = re.compile(r'(?: > |::)"(?:before|after) (?:all|each)" hook\b.*$')


def unanswered(report: Report, asked: Iterable[str], known: list[str]) -> Report:
    """The report of tests that were asked for, which has not passed if one of them has no result in it."""
    told = {name for test in report.tests for name in (test.id, test.file)} | {error.file for error in broken(report)}
    names = [_HOOK.sub("", name).rstrip("/") for name in asked]
    strange = [name for name in names if name not in told and not any(_is_below(each, name) for each in told)]
    cut = report.status in _CUT or (report.status is ReportStatus.CRASHED and bool(report.tests))
    if (
        not strange
        or cut
        or any(name.partition("::")[0] in {error.file for error in broken(report)} for name in strange)
    ):
        return report
    status = ReportStatus.INCONSISTENT if report.status is ReportStatus.PASSED else report.status
    notes = [f"no result came for {name}{_meant(name, known)}" for name in strange[:3]]
    notes += [f"nor for {len(strange) - 3} more"] if len(strange) > 3 else []
    return msgspec.structs.replace(report, status=status, notes=[*report.notes, *notes])


def is_one_of(test: str, names: list[str]) -> bool:
    """Whether it was asked for by its name, or by that of what it is in."""
    return any(test == name or _is_below(test, name) for name in names)


def besides(report: Report, asked: Iterable[str]) -> Report:
    """The report of tests that were asked for, and how many more were run: not every runner can be asked for one."""
    names = set(asked)
    unasked = [test for test in report.tests if test.id not in names and test.file not in names]
    exact = names <= {test.id for test in report.tests}
    if not exact or len(unasked) * len(names) > _COMPARED_MAX:
        return report
    more = [
        test.id for test in unasked if not any(_is_below(test.id, name) or _is_below(name, test.id) for name in names)
    ]
    what = "1 test was" if len(more) == 1 else f"{len(more)} tests were"
    note = f"{what} run besides: {report.runner} cannot be asked for less"
    return msgspec.structs.replace(report, notes=[*report.notes, note]) if more else report


_COMPARED_MAX = 1_000_000


def _is_below(test: str, name: str) -> bool:
    """Whether this is a test in the folder, file, class or group of that name, or one of its sets of values."""
    return test.startswith(name) and test[len(name) :].lstrip(" ")[:1] in tuple("/:>[.")


def _meant(name: str, known: list[str]) -> str:
    if name in known:
        return ": it is not there any more"
    if ends := [each for each in known if re.search(rf"\W{re.escape(name)}$", each)]:
        return f": did you mean {ends[0]}?"
    from difflib import get_close_matches  # noqa: PLC0415 — seldom needed

    close = get_close_matches(name, known[:_LOOKED_AT], n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ": no test is called so"


def missing(report: Report, project: Project, known: Iterable[str]) -> list[str]:
    """The known files that hold tests and of which the report says nothing."""
    told = heard(report, project) | {test.file for test in report.tests} | {error.file for error in broken(report)}
    folders = _go_folders(report, project)
    silent = [file for file in known if file not in told and root_of(file) not in folders]
    return sorted(file for file in silent if _has_tests(project, file))


def heard(report: Report, project: Project) -> set[str]:
    """The files that results came from. Cargo names none: there a file is heard by the names of the tests in it.

    Some runners name the files of failures only, as those of TAP do: of a file that is mended they would say nothing.
    """
    placing = {test.target for test in report.tests if test.file and test.status is TestStatus.PASSED}
    files = {test.file for test in report.tests if test.file and test.target in placing}
    if any(not test.file for test in report.tests) and any(project.named("**/Cargo.toml")):
        names = {re.split(r"::| ", test.id)[-1] for test in report.tests}
        files |= {path for path in project.named("**/*.rs") if names & set(RUST_TEST.findall(project.text(path)))}
    return files


def _go_folders(report: Report, project: Project) -> set[str]:
    """Results of Go name no files but packages, which are folders below the module."""
    module = re.search(r"(?m)^module\s+(\S+)", project.text("go.mod"))
    if not module:
        return set()
    packages = {test.suite[0].partition(" ")[0] for test in report.tests if test.suite}
    return {package.removeprefix(module.group(1)).strip("/") or "." for package in packages}


def _has_tests(project: Project, file: str) -> bool:
    mark = _MARKS.get(PurePosixPath(file).suffix)
    return mark is not None and project.has(file) and bool(mark.search(project.text(file)))


def files_in(project: Project, place: str, target: Target) -> list[str]:
    """The test files of a target in one of its folders."""
    files = (file for file in project.files if file.startswith(f"{place}/"))
    return [file for file in files if any(matches(file, glob) for glob in target.tests) and _has_tests(project, file)]


def _by_default(target: Target, project: Project) -> set[str]:
    command, patterns, settings = _DEFAULTS[target.runner]
    told = target.command != command or target.runner in project.json("package.json")
    if told or next(project.named(*settings), None):
        return set()
    return {file for file in project.named(*patterns) if target.runner != "go" or _is_built(project, file)}


def _is_built(project: Project, file: str) -> bool:
    """Go leaves out files by their build tags and by names that say a system; modules inside are their own."""
    above = [parent for parent in PurePosixPath(file).parents if parent.as_posix() != "."]
    inner = any(project.has(f"{parent}/go.mod") or parent.name[0] in "._" for parent in above)
    tagged = re.search(r"(?m)^//\s*(?:go:build|\+build)", project.text(file))
    return not inner and not tagged and PurePosixPath(file).name.count("_") == 1
