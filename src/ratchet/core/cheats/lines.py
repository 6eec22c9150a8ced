"""Rules on added lines, for every language: checks silenced, the runner sniffed or ended, tests switched off."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ratchet.core.cheats.cases import Case
from ratchet.core.cheats.found import Change, Cheat

_SUPPRESSED = [
    (r"#\s*type:\s*ignore", "a type error is ignored"),
    (r"#\s*(?:noqa|pylint:\s*disable|pyright:\s*ignore|ruff:\s*noqa|mypy:\s*ignore|flake8:\s*noqa)", "a lint finding is ignored"),
    (r"#\s*pragma:\s*no\s*(?:cover|branch|mutate)", "code is hidden from coverage or mutation"),
    (r"(?://|/\*)\s*@ts-(?:ignore|nocheck|expect-error)", "a type error is ignored"),
    (r"(?://|/\*)\s*(?:eslint|tslint|biome|oxlint|prettier)-(?:disable|ignore)", "a lint finding is ignored"),
    (r"(?://|/\*)\s*(?:istanbul|c8|v8)\s+ignore", "code is hidden from coverage"),
    (r"//\s*nolint", "a lint finding is ignored"),
    (r"#!?\[\s*(?:allow|expect)\s*\(", "a warning is allowed"),
    (r"@SuppressWarnings(?!\(\{?\s*\"(?:unchecked|rawtypes|serial)\")|//\s*NOSONAR|//\s*NOPMD|@SuppressFBWarnings", "a warning is ignored"),
    (r"#\s*rubocop:\s*disable|#\s*:nocov:", "a lint finding is ignored"),
    (r"#pragma\s+warning\s+disable|//\s*NOLINT|#pragma\s+GCC\s+diagnostic\s+ignored", "a warning is ignored"),
    (r"@phpstan-ignore|@psalm-suppress|phpcs:ignore|@codeCoverageIgnore", "a finding is ignored"),
]  # fmt: skip
# Those that say what they silence, on one line or for one thing: honest code has them too. For a whole file or crate, or of
# everything, they are none of these.
_BY_NAME = re.compile(
    r"type:\s*ignore\[[\w, -]+\]|pyright:\s*ignore\[\w|#\s*noqa:\s*[A-Z]+\d|#\s*pylint:\s*disable=\w"
    r"|eslint-disable-(?:next-)?line\s+[\w@]|//\s*nolint:\w|//\s*NOLINT(?:NEXTLINE)?\(\w|rubocop:\s*disable\s+\w+/\w"
    r"|#\[\s*(?:allow|expect)\s*\(\s*(?!warnings|unused\s*\)|clippy::all)\w|@SuppressWarnings\(\{?\s*\"(?!all\b)"
    r"|#pragma\s+warning\s+disable\s+\w|@phpstan-ignore\s+\w+\.\w|@psalm-suppress\s+\w"
)
_SNIFFED = [
    (r"PYTEST_CURRENT_TEST|PYTEST_VERSION|PYTEST_XDIST|['\"](?:pytest|unittest|_pytest|nose)['\"]\s+in\s+sys\.(?:modules|argv)", "asks whether pytest runs it"),
    (r"sys\.modules(?:\.get\(|\[)\s*['\"](?:pytest|_pytest|unittest)['\"]", "asks whether pytest runs it"),
    (r"inspect\.stack\(|sys\._getframe\(|inspect\.currentframe\(", "looks at who called it"),
    (r"JEST_WORKER_ID|VITEST(?:_WORKER_ID|_POOL_ID|_MODE)?\b.*(?:env|if)|(?:env|if).*\bVITEST\b|MOCHA_|NODE_TEST_CONTEXT", "asks whether a test runner runs it"),
    (r"process\.env\.NODE_ENV\s*={2,3}\s*['\"]test['\"]|typeof\s+(?:jest|vi|it|describe)\s*!", "asks whether it is tested"),
    (r"\btesting\.Testing\(\)|flag\.Lookup\(\s*\"test\.|strings\.HasSuffix\(\s*os\.Args\[0\],\s*\"\.test\"", "asks whether go test runs it"),
    (r"cfg!\(\s*test\s*\)|#\[cfg\(\s*not\(\s*test\s*\)\s*\)\]", "does something else under test"),
    (r"getStackTrace\(\)|StackWalker|org\.junit|RUST_TEST_THREADS|CARGO_TARGET_TMPDIR.*if", "looks at who called it"),
    (r"defined\?\(\s*(?:RSpec|Minitest)\s*\)|PHPUNIT_|class_exists\(['\"]PHPUnit", "asks whether it is tested"),
]  # fmt: skip
_ENDED = [
    (r"\bos\._exit\(|\bos\.kill\(\s*os\.getpid\(\)", "ends the process under the runner"),
    (r"pytest_(?:runtest|collection|sessionfinish|report|configure|pyfunc|terminal)\w*", "reaches into pytest"),
    (r"^\s*(?:import\s+_?pytest\b|from\s+_?pytest\b)|unittest\.(?:TestCase|TestResult|case)\.\w+\s*=[^=]", "reaches into the test runner"),
    (r"(?:TestCase|TestResult)\.\w+\s*=[^=]|builtins\.(?:assert|AssertionError|__import__)\s*=[^=]", "reaches into the test runner"),
    (r"globalThis\.(?:expect|assert|it|test|describe)\s*=|global\.(?:expect|assert|it|test|describe)\s*=", "replaces the assertions"),
    (r"Module\._load\s*=|require\.cache\[.*(?:assert|jest|mocha|vitest)", "replaces the test runner"),
    (r"sys\.set(?:trace|profile)\(|sys\.excepthook\s*=|AssertionError\.__", "reaches into the interpreter"),
    (r"process\.on\(\s*['\"]exit['\"].*exitCode|process\.exitCode\s*=\s*0|process\.reallyExit", "sets the runner's exit code"),
    (r"panic::set_hook|std::process::exit\(\s*0\s*\)", "ends the process under the runner"),
    (r"System\.exit\(\s*0\s*\)|Runtime\.getRuntime\(\)\.halt\(", "ends the process under the runner"),
    (r"atexit\.register\(.*_exit", "ends the process under the runner"),
    (r"\bos\.Exit\(\s*0\s*\)", "ends the process under the runner"),
]  # fmt: skip
_CATCHES_NOTHING = [
    (r"catch\s*(?:\(\s*(?:final\s+)?(?:\\?(?:System\.)?(?:Exception|Throwable|RuntimeException|Error)\b\s*)?[\$a-z_]*\w*\s*\))?"
     r"\s*\{\s*(?://[^\n]*|/\*.*?\*/)?\s*\}", "every error is caught and forgotten"),
    (r"rescue\s*(?:=>\s*\w+|Exception|StandardError)?\s*(?:;|\n)\s*(?:nil\s*\n\s*)?end", "every error is caught and forgotten"),
]  # fmt: skip
_OFF = [
    (r"\b(?:xit|xdescribe|xtest|fit|fdescribe|xcontext|xspecify)\s*[(\s]['\"(`]", "a test is switched off or alone on"),
    (r"\b(?:it|test|describe|context|suite|bench)\.(?:skip|only|todo|fixme|fails|failing|skipIf\(\s*true|runIf\(\s*false)\b", "a test is switched off or alone on"),
    (r"\b(?:it|test|describe)\s*\(.*\{\s*(?:skip|todo|only)\s*:\s*(?:true|['\"])", "a test is switched off or alone on"),
    (r"\bthis\.skip\(\)|\b(?:t|ctx|context)\.skip\(", "a test is skipped"),
    (r"\bt\.Skip(?:f|Now)?\(", "a test is skipped"),
    (r"^\s*//\s*\+build\s+(?:ignore|never)|^\s*//go:build\s+(?:ignore|never|!)", "a test file is not built"),
    (r"#\[\s*ignore", "a test is ignored"),
    (r"#!?\[\s*cfg\(\s*(?:any\(\)|FALSE|feature\s*=\s*\"(?:never|disabled|none|off|ignore\w*|skip\w*)\")", "a test is not built"),
    (r"@(?:Disabled|Ignore)\b|\bassumeTrue\(\s*false|\bassumeFalse\(\s*true|Assumptions\.abort\(|enabled\s*=\s*false", "a test is switched off"),
    (r"\bmarkTest(?:Skipped|Incomplete)\(|@requires\b.*nonexist|@group\s+(?:skip|disabled)", "a test is skipped"),
    (r"\bDISABLED_\w+|\bGTEST_SKIP\(\)|\[\.(?:hide)?\]|\[!(?:mayfail|shouldfail)\]", "a test is switched off"),
    (r"^\s*#\s*if\s+(?:0|false)\b|\bCHECK(?:ED)?_NOFAIL\b", "a test is not compiled or cannot fail"),
    (r"\[(?:Fact|Theory)\s*\([^)]*Skip\s*=|[\[,]\s*Ignore\b|Assert\.(?:Ignore|Inconclusive)\(", "a test is skipped"),
    (r"@tag\s+:?skip|@moduletag\s+:?skip|\bXCTSkip|\.disabled\(", "a test is skipped"),
    (r"^\s*(?:skip|pending)\s*(?:$|['\"(]|if\s+true|unless\s+false)", "a test is skipped"),
    (r"\bcollect_ignore(?:_glob)?\b|\bpytest_ignore_collect\b|\b__test__\s*=\s*False", "test files are left out"),
    (r"@(?:pytest\.mark\.)?(?:skip|xfail)\b|@(?:unittest\.)?(?:skip|expectedFailure)\b", "a test is switched off"),
]  # fmt: skip


def find_in_source(change: Change, known: frozenset[str] = frozenset()) -> list[Cheat]:
    """`known` are lines that stood in any file before: what moved with its file is not new."""
    found = _match(change, _SUPPRESSED, "check-silenced", known)
    found += _match(change, _SNIFFED, "runner-sniffed", known)
    found += _match(change, _ENDED, "runner-touched", known)
    return [*found, *_swallowed(change)]


def find_in_test(change: Change, fresh: Sequence[Case] = ()) -> list[Cheat]:
    """Python's are read as syntax, and a new file or test takes nothing away; else an added line that switches something
    off is enough."""
    touched = _match(change, [rule for rule in _ENDED if "import" not in rule[0]], "runner-touched")
    if change.path.endswith(".py") or change.before is None:
        return touched
    new = [(case.line, case.last_line) for case in fresh if case.file == change.path]
    off = _match(change, _OFF, "test-disabled")
    return [*touched, *(cheat for cheat in off if not any(first <= cheat.line <= last for first, last in new))]


def _match(change: Change, rules: list[tuple[str, str]], rule: str, known: frozenset[str] = frozenset()) -> list[Cheat]:
    """A line that only moved is not new."""
    before = known.union(line.strip() for line in (change.before or "").splitlines())
    found = []
    for line, text in change.added():
        what = next((what for pattern, what in rules if re.search(pattern, text)), "")
        if what and text.strip() not in before:
            doubt = rules is _SUPPRESSED and bool(_BY_NAME.search(text))
            detail = f"{what}: {text.strip()[:120]}"
            found.append(Cheat(file=change.path, line=line, rule=rule, detail=detail, doubt=doubt))
    return found


def _swallowed(change: Change) -> list[Cheat]:
    if change.path.endswith((".py", ".pyi")) or change.after is None:
        return []
    for pattern, what in _CATCHES_NOTHING:
        now, was = (re.findall(pattern, text or "", re.DOTALL) for text in (change.after, change.before))
        if len(now) > len(was):
            place = re.search(pattern, change.after, re.DOTALL)
            assert place
            line = change.after.count("\n", 0, place.start()) + 1
            return [Cheat(file=change.path, line=line, rule="error-swallowed", detail=what)]
    return []
