"""Other people's projects, laid out as theirs would be, and run as a user would run them."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import msgspec
import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.protocol import Target
from ratchet.checks.run.environment import allowed_environment
from ratchet.checks.run.executor import TestRun
from ratchet.core.report import Report, TestResult

PROJECTS = Path(__file__).parents[1] / "projects"
CACHE = Path(os.environ.get("RATCHET_TEST_CACHE") or Path(__file__).parents[2] / ".ratchet-test-cache")
NPM = CACHE / "npm" / "node_modules"
# What each runner needs that may be absent: a program on the path, or a package in the cache.
_PROGRAMS = {"go": "go", "cargo": "cargo", "bats": "bats", "ctest": "ctest", "rspec": "rspec", "minitest": "ruby",
             "phpunit": "phpunit", "exunit": "mix", "maven": "mvn", "node": "node", "prove": "prove",
             "gradle": "gradle", "busted": "busted", "nim": "nimble", "eunit": "rebar3", "common_test": "rebar3",
             "cabal": "cabal", "testthat": "Rscript", "dune": "dune"}  # fmt: skip
_PACKAGES = {"mocha": "mocha", "jest": "jest", "vitest": "vitest", "playwright": "@playwright/test", "bun": "bun",
             "deno": "deno", "ava": "ava", "jasmine": "jasmine", "uvu": "uvu", "lab": "@hapi/lab"}  # fmt: skip


def needs(runner: str) -> None:
    """Skip, saying what is missing and how to get it."""
    program, package = _PROGRAMS.get(runner), _PACKAGES.get(runner)
    if program and not shutil.which(program):
        pytest.skip(f"{program} is not installed: scripts/toolchains gets it")
    if package and not (NPM / package).exists():
        pytest.skip(f"the npm package {package} is not there: scripts/toolchains gets it")
    if runner == "ctest" and not Path("/usr/include/gtest/gtest.h").exists():
        pytest.skip("GoogleTest is not installed: scripts/toolchains gets it")


def lay_out(name: str, folder: Path) -> Path:
    """A copy of a project, with the packages it would have installed."""
    needs(name.partition(".")[0])
    shutil.copytree(PROJECTS / name, folder, ignore=shutil.ignore_patterns("target", "_build", "__pycache__"))
    if name == "cabal":  # that knows of no place to get packages from, and has those of the system
        (folder.parent / "cabal-home").mkdir()
        (folder.parent / "cabal-home" / "config").write_text("-- nothing\n")
    if name.partition(".")[0] in _PACKAGES:
        (folder / "node_modules").symlink_to(NPM)
    return folder


def environment(folder: Path) -> dict[str, str]:
    env = allowed_environment()
    env["PATH"] = os.pathsep.join([env.get("PATH", ""), str(NPM / ".bin")])
    env["CABAL_DIR"] = str(folder.parent / "cabal-home")
    # A pytest that makes a folder for its tests removes those of earlier sessions when it ends. Ours are so large that
    # this took minutes.
    env["PYTEST_DEBUG_TEMPROOT"] = str(folder.parent)
    return env | {"XDG_CACHE_HOME": str(folder.parent / "cache"), "GOFLAGS": "-mod=mod", "GOPROXY": "off"}


def run(
    folder: Path,
    targets: list[Target] | None = None,
    *,
    timeout_s: float = 120,
    silence_s: float | None = None,
    only: dict[str, list[TestResult]] | None = None,
    **env: str,
) -> Report:
    tests = TestRun(
        targets=targets or detect(folder),
        timeout_s=timeout_s,
        silence_s=silence_s,
        env=environment(folder) | env,
        only=only or {},
    )
    return asyncio.run(tests.run(folder, log=folder.parent / f"{folder.name}.log"))


def statuses(report: Report) -> dict[str, str]:
    return {test.id: str(test.status) for test in report.tests}


def red(report: Report) -> dict[str, tuple[str, int, str | None, str | None]]:
    """Each failure's place and values."""
    found = {test.id: test.failure for test in report.tests if test.failure}
    return {name: (failure.file, failure.line, failure.expected, failure.actual) for name, failure in found.items()}


def chosen(report: Report, *names: str) -> dict[str, list[TestResult]]:
    tests = [test for test in report.tests if test.id in names]
    return {report.runner: [msgspec.structs.replace(test, failure=None) for test in tests]}
