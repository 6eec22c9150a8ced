"""Detects changes in files that determine how tests run, or that run before them: these can fake any result."""

from __future__ import annotations

import re
from collections import Counter

from ratchet.core.cheats.findings import Change, Cheat
from ratchet.core.lines import split_lines
from ratchet.core.runner_settings import changes_runner_settings, has_runner_settings

_RUNNER_FILES = re.compile(
    r"""(?:^|/)(?:
      conftest\.py | pytest\.ini | \.pytest\.ini | \.coveragerc | noxfile\.py
    | jest\.config\.\w+ | jest\.setup\.\w+ | vitest\.config\.\w+ | vitest\.workspace\.\w+ | \.mocharc(?:\.\w+)? | karma\.conf\.\w+
    | playwright\.config\.\w+ | \.nycrc(?:\.json)? | phpunit\.xml(?:\.dist)? | \.rspec | spec_helper\.rb | rails_helper\.rb
    | \.busted | \.proverc | dart_test\.yaml | nextest\.toml | \.cargo/config(?:\.toml)? | tarpaulin\.toml | junit-platform\.properties | testng\.xml | \.gitlab-ci\.yml
    )$ | (?:^|/)\.github/workflows/""",
    re.VERBOSE,
)
_STARTS_FIRST = re.compile(r"(?:^|/)(?:sitecustomize\.py|usercustomize\.py|[^/]+\.pth)$")
# A module with the name of a test tool, beside the code, is imported instead of the tool.
_SHADOWS = re.compile(
    r"^(?:(?:.*/)?(?:src|lib|python)/)?(?:pytest|_pytest|unittest|pluggy|hypothesis|coverage|mypy|ruff)(?:/__init__)?\.py$"
)
_SNAPSHOT = re.compile(
    r"(?:\.snap|\.ambr|\.approved\.\w+|__snapshots__/.*|\.golden|\.expected(?:\.\w+)?|/expected(?:_\w+)?\.(?:json|txt|html|xml|ya?ml)"
    r"|/(?:golden|goldens|expected|snapshots)/[^/]+\.(?!py$|js$|ts$|go$|rs$|rb$|java$)\w+|/testdata/[^/]+\.(?:want|out|stdout|stderr|exp))$"
)
_MAKE_TEST = re.compile(r"^(?:test|check|tests|unit|verify)\s*:.*\n(?:\t.*\n?)*", re.MULTILINE)
_SUREFIRE = re.compile(
    r"skipTests|maven\.test\.(?:skip|failure\.ignore)|testFailureIgnore|ignoreFailures|<exclude>|exclude\s*\(|filter\s*\{"
)


_CTEST = re.compile(r"\bWILL_FAIL\b|\bDISABLED\s+(?:TRUE|ON|1)\b|\bSKIP_RETURN_CODE\b|gtest_filter=-", re.IGNORECASE)
# Settings that switch a checker off for a whole project.
_LAX = re.compile(
    r"""ignore_errors\s*=\s*true|"(?:strict|noImplicitAny|strictNullChecks|noEmitOnError|checkJs)"\s*:\s*false|\bstrict\s*=\s*false"""
    r"""|<TreatWarningsAsErrors>\s*false|<NoWarn>|<Nullable>\s*disable|follow_imports\s*=\s*"?skip|typeCheckingMode"?\s*[:=]\s*"off"|ignore\s*=\s*\[\s*"ALL"|"?ignoreBuildErrors"?\s*:\s*true""",
    re.IGNORECASE,
)
_CHECKER_FILES = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|\.?mypy\.ini|\.?ruff\.toml|pyrightconfig\.json|tsconfig[\w.]*\.json|next\.config\.\w+|[\w.-]+\.(?:cs|fs|vb)proj|Directory\.Build\.props)$"
)


def decides_how_tests_run(path: str) -> bool:
    """Return whether results depend on the whole file; for files that people edit too, `changes_runner_settings` checks
    the relevant parts."""
    runs_first = _STARTS_FIRST.search(path) or _SHADOWS.search(path)
    return bool(runs_first or _RUNNER_FILES.search(path)) or path.rsplit("/", 1)[-1] in ("Makefile", "GNUmakefile")


def is_plain_conftest(change: Change) -> bool:
    """Return whether a conftest contains only fixtures and what they need, and nothing that changes how tests run."""
    return change.path.rsplit("/", 1)[-1] == "conftest.py" and not _is_runner_file(change)


def find(change: Change, spec: str = "") -> list[Cheat]:
    weak, decides = _weaker(change), _is_runner_file(change) or _runner_part(change)
    lower = _lowered(change, spec)
    return [
        Cheat(file=change.path, line=_first_line(change), rule=rule, detail=detail, doubt=doubt)
        for rule, detail, holds, doubt in (
            ("runner-configuration", f"tests are left out, or may fail: {weak[:120]}", bool(weak), False),
            ("runner-configuration", "it decides how tests are run", decides and not weak, True),
            ("threshold-lowered", lower, bool(lower), False),
            (
                "runs-before-tests",
                "Python runs it before anything else",
                bool(_STARTS_FIRST.search(change.path)),
                False,
            ),
            ("runs-before-tests", "it takes the place of a test tool", bool(_SHADOWS.search(change.path)), False),
            ("check-silenced", "a checker is switched off", _weaker_settings(change), False),
            ("check-silenced", "a checker asks for less", _asks_less(change, spec), True),
            ("snapshot-edited", "a recorded answer was changed", _snapshot_edited(change, spec), True),
        )
        if holds
    ]


# Options that skip tests, repeat them or let them fail unnoticed, in files that determine how tests run.
_WEAK = re.compile(
    r"""\|\|\s*(?:true|:|exit\s+0|echo)\b|;\s*(?:exit\s+0|true)\s*$|continue-on-error:\s*true|allow_failure:\s*true|\bset\s\+e\b|passWithNoTests
    |--no-verify|--deselect|--ignore(?:-glob)?[=\s]+\S*(?:test|spec)|-k\s*['"]?not\s|--reruns|--only-rerun|\bretries['"]?\s*[:=]\s*['"]?[1-9]|retryTimes
    |\bjest\b[^\n]*\s-u\b|--update-?[sS]napshots?|--snapshot-update|INSTA_UPDATE|INSTA_FORCE_PASS|testPathIgnorePatterns|modulePathIgnorePatterns
    |\bif:\s*(?:\$\{\{\s*)?false|filter_run_excluding|run\s+rescue\s+nil|\bexclude:\s*\[\s*:|--exclude\s|-p\s+no:
    |<Compile\s+Remove=|^\s*(?:test|doctest|harness|autotests)\s*=\s*false|\bexpect\s*=|testFailureIgnore|ignoreFailures|skipTests|maven\.test\.(?:skip|failure)""",
    re.VERBOSE | re.MULTILINE,
)
_RUNS_TESTS = re.compile(
    r"^\s*(?:-\s*)?(?:run|script|-)\s*:?\s*(?P<what>.*\b(?:pytest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest|(?:cargo|go|npm|pnpm|yarn|mix|dotnet|make"
    r"|gradlew?|mvnw?|bundle exec \w+|rake|just|deno|bun|swift|composer|zig build)\s+(?:run\s+)?(?:test|check|verify)\w*)\b.*)$"
)


def _decides_here(path: str) -> bool:
    name = path.rsplit("/", 1)[-1]
    return bool(_RUNNER_FILES.search(path) or has_runner_settings(path) or _BUILDS.search(name))


_BUILDS = re.compile(
    r"^(?:Makefile|GNUmakefile|[Jj]ustfile|Cargo\.toml|CMakeLists\.txt|\w[\w.-]*\.(?:cs|fs|vb)proj|pom\.xml|build\.gradle(?:\.kts)?|build\.sbt|test_helper\.exs)$"
)


def _weaker(change: Change) -> str:
    """Describe the first added line that skips tests or lets them fail, or removed line that ran them; "" if none."""
    if not _decides_here(change.path) or (
        change.before is None and change.path.endswith(("package.json", "Cargo.toml"))
    ):
        return ""
    name = change.path.rsplit("/", 1)[-1]
    known = {line.strip() for line in split_lines(change.before or "")}
    for _, line in change.added():
        comment = line.lstrip().startswith(("#", "//"))
        if (
            line.strip() not in known
            and not comment
            and (_WEAK.search(line) or (name == "conftest.py" and _FAKES.search(line)))
        ):
            return line.strip()
    return _command_gone(change)


_FAKES = re.compile(
    r"\.outcome\s*=|exitstatus\s*=|items\[:\]\s*=|deselected|\bos\._exit|\bskip\b|\bxfail\b|collect_ignore|\b_pytest\b|builtins|sys\.modules\["
)


def _command_gone(change: Change) -> str:
    if not change.before or not re.search(r"\.github/workflows/|\.gitlab-ci\.yml$", change.path):
        return ""
    after = change.after or ""
    for line in split_lines(change.before):
        found = _RUNS_TESTS.match(line)
        tool = re.search(r"[\w-]*test\w*|tox|nox|jest|mocha|rspec|check|verify", found["what"]) if found else None
        if tool and tool[0] not in after:
            return f"{line.strip()} is gone"
    return ""


_THRESHOLDS = re.compile(
    r"""["']?(?P<key>fail[_-]under|min\w*[_-]?coverage|coverage[_-]?(?:min\w*|threshold)|branches|lines|functions|statements|minMsi|minCoveredMsi|break
    |minimum|min-?level|level|covered_?ratio|target|threshold)["']?\s*[:=>]\s*["']?(?P<value>\d+(?:\.\d+)?)""",
    re.VERBOSE | re.IGNORECASE,
)
_MEASURED = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.cfg|tox\.ini|\.coveragerc|package\.json|(?:jest|vitest|karma|stryker)\.con\w+\.\w+|\.nycrc[.\w]*|\.c8rc[.\w]*"
    r"|pom\.xml|build\.gradle(?:\.kts)?|phpstan\.neon[.\w]*|infection\.json\w*|codecov\.ya?ml|\.codecov\.ya?ml|\.simplecov|spec_helper\.rb|mix\.exs|coveralls\.json|Makefile|tarpaulin\.toml)$"
)


def _lowered(change: Change, spec: str) -> str:
    """Describe a lowered threshold of coverage or mutation that the spec does not name."""
    if not _MEASURED.search(change.path) or not change.before:
        return ""
    was, now = (
        [(m["key"], m["value"]) for m in _THRESHOLDS.finditer(text or "")] for text in (change.before, change.after)
    )
    if len(was) == len(now):
        for (key, old), (same, new) in zip(was, now, strict=True):
            if key == same and float(new) < float(old) and not re.search(rf"(?<![\w.]){re.escape(new)}(?!\w)", spec):
                return f"{key} is {new} where it was {old}"
    lost = [key for key, _ in was if key.lower() not in {same.lower() for same, _ in now}]
    return f"{lost[0]} is gone" if lost and change.after is not None else ""


def _is_runner_file(change: Change) -> bool:
    """Return whether the file configures the runner. Fixtures in a conftest may change; what changes how tests run may
    not."""
    if change.path.rsplit("/", 1)[-1] == "conftest.py":
        return any(_CONFTEST.search(line) for _, line in change.added())
    if re.search(r"\.github/workflows/|\.gitlab-ci\.yml$", change.path):
        return change.before is not None and _workflow(change.before) != _workflow(change.after)
    decides = bool(_RUNNER_FILES.search(change.path))
    if decides:
        return _runner_settings(change.before) != _runner_settings(change.after)
    return decides


def _workflow(text: str | None) -> list[str]:
    """Return the commands of a CI workflow, with the conditions of its jobs."""
    lines = [line.strip() for line in split_lines(text or "")]
    return sorted(
        line
        for line in lines
        if re.search(r"\btests?\b|\bcheck\b|\blint\b|cov|^-?\s*if:", line)
        and not re.search(r"\buses:|\bname:|^#", line)
    )


_CONFTEST = re.compile(
    r"\bpytest_\w+|\bcollect_ignore|autouse\s*=\s*True|\bsys\.modules\b|^[\w.]+\.\w+\s*=[^=]|\b_pytest\b|\bos\._exit|hookimpl|"
    r"\bskip\b|\bxfail\b|\bimportlib\b|\bsetattr\("
)
# Settings that affect only the output, in configurations that are programs and cannot be read as data.
_OUTPUT_SETTINGS = re.compile(
    r"\b(?:collectCoverage(?:From)?|coverageReporters|coverageDirectory|coveragePathIgnorePatterns|verbose|displayName|reporters?"
    r"|testTimeout|clearMocks|restoreMocks|resetMocks|errorOnDeprecated|slowTestThreshold|slow|trace|video|screenshot|outputFile)\s*:\s*"
    r"(?:\[[^\]]*\]|'[^']*'|\"[^\"]*\"|[\w.]+)\s*,?"
)


def _runner_settings(text: str | None) -> str:
    return re.sub(r"[\s,;]", "", _THRESHOLDS.sub("", _OUTPUT_SETTINGS.sub("", text or "")))


def _weaker_settings(change: Change) -> bool:
    known = {line.strip() for line in split_lines(change.before or "")}
    added = [line for _, line in change.added() if line.strip() not in known]
    return bool(_CHECKER_FILES.search(change.path)) and any(_LAX.search(line) for line in added)


def _runner_part(change: Change) -> bool:
    name = change.path.rsplit("/", 1)[-1]
    if has_runner_settings(change.path):
        before, after = (side and _THRESHOLDS.sub("", side) for side in (change.before, change.after))
        parsed = changes_runner_settings(change.path, _bytes(before), _bytes(after))
        return parsed and changes_runner_settings(change.path, _bytes(change.before), _bytes(change.after))
    if name in ("Makefile", "GNUmakefile", "justfile", "Justfile"):
        return _MAKE_TEST.findall(change.before or "") != _MAKE_TEST.findall(change.after or "") and bool(change.before)
    if name == "Cargo.toml":
        return _cargo(change.before) != _cargo(change.after)
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return any(_CTEST.search(line) for _, line in change.added())
    if name in ("pom.xml", "build.gradle", "build.gradle.kts", "build.sbt"):
        return any(_SUREFIRE.search(line) for _, line in change.added())
    return False


def _cargo(text: str | None) -> list[str]:
    return re.findall(r"^\s*(?:test|doctest|harness|autotests)\s*=.*|^\[\[test\]\]", text or "", re.MULTILINE)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _snapshot_edited(change: Change, spec: str) -> bool:
    """Return whether an existing snapshot was changed or emptied; new ones come with new tests."""
    if not _SNAPSHOT.search(change.path) or not change.before:
        return False
    if not Counter(split_lines(change.before)) - Counter(split_lines(change.after or "")):
        return False
    words = {word for _, line in change.added() for word in re.findall(r"\w{3,}", line)} - set(
        re.findall(r"\w+", change.before)
    )
    return not words or not all(word in spec for word in words)


# Lines of a checker's settings that weaken it, and settings that list its rules.
_LESS = re.compile(
    r"""\boff\b|\bignore\w*|\bdisabl\w*|\bexclud\w*|\bskip\w*|\ballow\w*|:\s*false|=\s*false|=\s*["']?[Ff]alse|Enabled:\s*false|:\s*0\b|:\s*["']?warn""",
    re.IGNORECASE,
)
_MORE = re.compile(
    r"""^-\s*["']?[\w-]+["']?,?$|["']error["']|:\s*2\b|\bstrict\w*|=\s*[Tt]rue|:\s*true|\bdeny\b|\bforbid\b|\bselect\b"""
)
_LINTERS = re.compile(
    r"(?:^|/)(?:\.eslintrc[.\w]*|eslint\.config\.\w+|biome\.jsonc?|\.?golangci\.ya?ml|\.rubocop[\w.]*\.yml|\.?ruff\.toml|\.?mypy\.ini|\.pylintrc|\.flake8|tslint\.json"
    r"|phpstan\.neon[.\w]*|psalm\.xml|detekt[\w.-]*\.yml|checkstyle[\w.-]*\.xml|\.?clippy\.toml|\.credo\.exs|tsconfig[\w.]*\.json|pyrightconfig\.json|\.editorconfig|\.swiftlint\.yml|\.clang-tidy)$"
)


_RELAXED = re.compile(
    r"(?i)\b(?:disabl|turn|switch|relax|allow|ignor|drop|lower|remov|exclud|suppress|loosen|config|set|skip|migrat|updat|replac)"
)


def _asks_less(change: Change, spec: str) -> bool:
    """Return whether a rule that the spec does not name was removed or switched off."""
    if not _LINTERS.search(change.path) or not change.before:
        return False
    old, new = ([line.strip() for line in split_lines(text or "")] for text in (change.before, change.after))
    less = [line for line in new if line not in old and _LESS.search(line)]
    less += [line for line in old if line not in new and _MORE.search(line)]
    names = [re.findall(r"[A-Za-z][\w-]{2,}", line) for line in less]
    if not _RELAXED.search(spec):  # the spec names a rule whose findings are to be mended
        return bool(less)
    return any(
        not any(word.lower() in spec.lower() for word in words if word not in ("error", "off", "warn"))
        for words in names
    )


def _first_line(change: Change) -> int:
    return next((line for line, _ in change.added()), 1)
