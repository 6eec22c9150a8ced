"""Detects tests without a result: a run in which the tests of a file silently vanished never passes.

Expected files come from two sources: the runner's defaults, if the project does not configure it, and the files of
earlier runs. A file counts while it exists and contains something that looks like a test.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from ratchet.checks.detect.project import Project, parent_of
from ratchet.checks.protocol import Target
from ratchet.core.report import Report, ReportStatus, TestStatus, load_errors
from ratchet.core.roles import matches_glob

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
# Default test files of each runner: the command, the patterns, and the files in which a project could change them.
_SPECS = ["**/*.test.?s", "**/*.spec.?s", "**/*.test.?sx", "**/*.spec.?sx"]
_DEFAULTS = {
    "jest": (["jest"], [*_SPECS, "**/__tests__/**/*.?s"], ["**/jest.config.*"]),
    "vitest": (["vitest", "run"], _SPECS, ["**/vitest.config.*", "**/vite.config.*", "**/vitest.workspace.*"]),
    "mocha": (["mocha"], ["test/*.js", "test/*.cjs", "test/*.mjs"], ["**/.mocharc.*"]),
    "node": (["node", "--test"], ["**/*.test.js", "**/*.test.mjs", "**/*.test.cjs"], []),
    "rspec": (["rspec"], ["spec/**/*_spec.rb"], [".rspec"]),
    "go": (["go", "test", "./..."], ["**/*_test.go"], []),
}


def check_default_files(report: Report, target: Target, project: Project) -> Report:
    """Check a full run against the runner's default files: it has not passed if one of them has no result."""
    if report.status is not ReportStatus.PASSED or target.runner not in _DEFAULTS:
        return report
    return add_missing_files(report, missing_files(report, project, _default_files(target, project)))


def add_missing_files(report: Report, lost: list[str]) -> Report:
    """Add a note about files without results; a passed report becomes inconsistent. Interrupted runs are exempt."""
    if not lost or report.status in (ReportStatus.TIMEOUT, ReportStatus.CRASHED):
        return report
    more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
    note = f"no results from existing test files: {', '.join(lost[:3])}{more}"
    passed = report.status is ReportStatus.PASSED
    status = ReportStatus.INCONSISTENT if passed else report.status
    return msgspec.structs.replace(report, status=status, notes=[*report.notes, note])


# A selected test that a run did not reach is not unknown.
_LOOKED_AT = 5_000
_CUT = {ReportStatus.TIMEOUT, ReportStatus.INTERRUPTED, ReportStatus.ERROR}


# A hook has a result only if it fails; otherwise the tests of its suite count.
_HOOK = re.compile(r'(?: > |::)"(?:before|after) (?:all|each)" hook\b.*$')


def check_selected(report: Report, asked: Iterable[str], known: list[str]) -> Report:
    """Check a run of selected tests: it has not passed if one of them has no result."""
    with_results = {name for test in report.tests for name in (test.id, test.file)} | {
        error.file for error in load_errors(report)
    }
    names = [_HOOK.sub("", name).rstrip("/") for name in asked]
    strange = [
        name for name in names if name not in with_results and not any(_is_below(each, name) for each in with_results)
    ]
    cut = report.status in _CUT or (report.status is ReportStatus.CRASHED and bool(report.tests))
    if (
        not strange
        or cut
        or any(name.partition("::")[0] in {error.file for error in load_errors(report)} for name in strange)
    ):
        return report
    status = ReportStatus.INCONSISTENT if report.status is ReportStatus.PASSED else report.status
    notes = [f"no result for {name}{_suggestion(name, known)}" for name in strange[:3]]
    notes += [f"nor for {len(strange) - 3} more"] if len(strange) > 3 else []
    return msgspec.structs.replace(report, status=status, notes=[*report.notes, *notes])


def is_selected(test: str, names: list[str]) -> bool:
    """Return whether a test was selected, by its own name or by that of a file, class or group around it."""
    return any(test == name or _is_below(test, name) for name in names)


def note_extra_tests(report: Report, asked: Iterable[str]) -> Report:
    """Note how many tests ran besides the selected ones: not every runner can select a single test."""
    names = set(asked)
    unasked = [test for test in report.tests if test.id not in names and test.file not in names]
    exact = names <= {test.id for test in report.tests}
    if not exact or len(unasked) * len(names) > _COMPARED_MAX:
        return report
    more = [
        test.id for test in unasked if not any(_is_below(test.id, name) or _is_below(name, test.id) for name in names)
    ]
    what = "1 test was" if len(more) == 1 else f"{len(more)} tests were"
    note = f"{what} run in addition: {report.runner} cannot select fewer"
    return msgspec.structs.replace(report, notes=[*report.notes, note]) if more else report


_COMPARED_MAX = 1_000_000


def _is_below(test: str, name: str) -> bool:
    """Return whether a test lies in the folder, file, class or group of that name, or is one of its parameter sets."""
    return test.startswith(name) and test[len(name) :].lstrip(" ")[:1] in tuple("/:>[.")


def _suggestion(name: str, known: list[str]) -> str:
    if name in known:
        return ": it no longer exists"
    if ends := [each for each in known if re.search(rf"\W{re.escape(name)}$", each)]:
        return f": did you mean {ends[0]}?"
    from difflib import get_close_matches  # noqa: PLC0415 — seldom needed

    close = get_close_matches(name, known[:_LOOKED_AT], n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ": no test has that name"


def missing_files(report: Report, project: Project, known: Iterable[str]) -> list[str]:
    """Return the known files that contain tests and have no result in the report."""
    reported = (
        files_with_results(report, project)
        | {test.file for test in report.tests}
        | {error.file for error in load_errors(report)}
    )
    folders = _go_folders(report, project)
    silent = [file for file in known if file not in reported and parent_of(file) not in folders]
    return sorted(file for file in silent if _has_tests(project, file))


def files_with_results(report: Report, project: Project) -> set[str]:
    """Return the files with results. Cargo reports no files: there a file counts if it defines a test of a reported
    name.

    Some runners, such as those that print TAP, name files only for failures: once such a file is fixed, it has no
    results.
    """
    placing = {test.target for test in report.tests if test.file and test.status is TestStatus.PASSED}
    files = {test.file for test in report.tests if test.file and test.target in placing}
    if any(not test.file for test in report.tests) and any(project.glob("**/Cargo.toml")):
        names = {re.split(r"::| ", test.id)[-1] for test in report.tests}
        files |= {path for path in project.glob("**/*.rs") if names & set(RUST_TEST.findall(project.text(path)))}
    return files


def _go_folders(report: Report, project: Project) -> set[str]:
    """Return the folders of Go packages with results: Go reports packages, not files."""
    module = re.search(r"(?m)^module\s+(\S+)", project.text("go.mod"))
    if not module:
        return set()
    packages = {test.suite[0].partition(" ")[0] for test in report.tests if test.suite}
    return {package.removeprefix(module.group(1)).strip("/") or "." for package in packages}


def _has_tests(project: Project, file: str) -> bool:
    mark = _MARKS.get(PurePosixPath(file).suffix)
    return mark is not None and project.has(file) and bool(mark.search(project.text(file)))


def files_with_tests(project: Project, place: str, target: Target) -> list[str]:
    """Return the test files of a target in one of its folders."""
    files = (file for file in project.files if file.startswith(f"{place}/"))
    return [
        file for file in files if any(matches_glob(file, glob) for glob in target.tests) and _has_tests(project, file)
    ]


def _default_files(target: Target, project: Project) -> set[str]:
    command, patterns, settings = _DEFAULTS[target.runner]
    is_configured = target.command != command or target.runner in project.json("package.json")
    if is_configured or next(project.glob(*settings), None):
        return set()
    return {file for file in project.glob(*patterns) if target.runner != "go" or _is_built(project, file)}


def _is_built(project: Project, file: str) -> bool:
    """Return whether Go compiles this file: not with build tags, a system in its name, or inside a nested module."""
    above = [parent for parent in PurePosixPath(file).parents if parent.as_posix() != "."]
    inner = any(project.has(f"{parent}/go.mod") or parent.name[0] in "._" for parent in above)
    tagged = re.search(r"(?m)^//\s*(?:go:build|\+build)", project.text(file))
    return not inner and not tagged and PurePosixPath(file).name.count("_") == 1
