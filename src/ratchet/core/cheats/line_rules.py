"""Rules for added lines in every language: silenced checks, code that detects or ends the test runner, disabled tests."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ratchet.core.cheats.findings import Change, Cheat
from ratchet.core.cheats.test_cases import TestCase
from ratchet.core.lines import split_lines

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
    (r"(?:swiftlint|ktlint|detekt|credo|scalastyle|scalafix|checkstyle|cppcheck|standard)[:-](?:disable|off|suppress)|//\s*ignore(?:_for_file)?:|shellcheck\s+disable="
     r"|luacheck:\s*(?:ignore|push)|##\s*no\s+critic|OPTIONS_GHC\s+-(?:w\b|fno-warn|Wno)|HLINT\s+ignore|@file:Suppress|@Suppress\(|@nowarn|@dialyzer|noinspection", "a finding is ignored"),
    (r"@phpstan-ignore|@psalm-suppress|phpcs:ignore|@codeCoverageIgnore", "a finding is ignored"),
]  # fmt: skip
# For a whole file, crate or project, or for all checks: no line needs that.
_WHOLE = re.compile(
    r"(?:ruff|flake8):\s*noqa|mypy:\s*ignore[-_]errors|pylint:\s*disable=all|@ts-nocheck(?!\s+-+\s+\w)|/\*\s*eslint-disable\s*\*/|istanbul\s+ignore\s+file"
    r"|#!\[\s*allow|#\[\s*allow\s*\(\s*(?:warnings|unused\s*\)|clippy::all)|@SuppressWarnings\(\{?\s*\"all\b|nolint:\s*all\b|biome-ignore-all|tslint:disable\s*$"
    r"|^\s*#\s*type:\s*ignore\s*$|swiftlint:disable\s+all|OPTIONS_GHC\s+-w\b|##\s*no\s+critic\s*$|phpcs:ignoreFile|pragma\s+warning\s+disable\s*$"
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
# Honest code may do so too: the spec decides.
_MAYBE = [
    (r"^\s*#\s*(?:ifn?def|if|elif)\b.*\b\w*(?:UNIT_?TEST|UNDER_TEST|TESTING|TEST_BUILD|GTEST|CATCH_|DOCTEST)\w*", "is built otherwise for tests"),
    (r"cfg!\(\s*(?:any|all)?\(?.*\btest\b|cfg\(\s*not\(\s*test\s*\)", "does something else under test"),
    (r"\b(?:open|read\w*|load\w*|Read\w*|include_str|include_bytes|file_get_contents|slurp|import|require|glob|exists\w*|is_file|join|Path|resolve)\w*!?[\s(\"'`].*"
     r"\b(?:tests?|specs?|testdata|__tests__|__snapshots__|golden|goldens|fixtures|expected)[/\\\"'`]", "reads the tests' files"),
    (r"""[/"'`](?:tests?|specs?|testdata|__tests__|__snapshots__|golden|goldens|fixtures)[/"'`].*(?:golden|expected|\.snap\b|\.want\b|fixture)|\.(?:expected|golden|snap|want)\b["'`.]""", "reads the tests' files"),
    (r"sys\.argv.*(?:pytest|unittest)|\bos\.Args\[0\].*test|argv\[[01]\].*(?:jest|vitest|mocha|test)|argv0?.*(?:phpunit|rspec)", "looks at how it was started"),
    (r"(?:environ|getenv|ENV|env)\b[\[.(:]+\s*['\":]?\w*(?:PYTEST|JEST|VITEST|RSPEC|PHPUNIT|BATS_|HARNESS_|XCTEST|FLUTTER_TEST|CTEST_|UNDER_TEST|UNIT_TEST|TESTING|TEST_MODE|RUNNING_TESTS)", "asks whether it is tested"),
    (r"(?:RAILS_ENV|RACK_ENV|APP_ENV|MIX_ENV|NODE_ENV|ASPNETCORE_ENVIRONMENT).{0,24}['\":]test\b|Rails\.env\.test\?|Mix\.env\(?\)?\s*==\s*:test|runningUnitTests|isRunningTests?", "asks whether it is tested"),
    (r"GetAssemblies\(\)|new\s+StackTrace\(|Environment\.StackTrace|XCTestConfigurationFilePath|NSClassFromString\(\"XCTest|Error\(\)\.stack|\bcaller(?:_locations)?\b.*(?:spec|test)"
     r"|debug_backtrace\(|runtime\.Callers?\(|Thread\.currentThread\(\)\.getStackTrace", "looks at who called it"),
    (r"\b(?:globalThis|global|window|self)\b.*\[\s*['\"](?:describe|it|test|jest|vi|vitest|expect)['\"]\s*\]|\bargv\b.*['\"/](?:vitest|jest|mocha|ava|tape|pytest|rspec|phpunit)\b", "asks whether it is tested"),
    (r"typeof\s+(?:jest|vi|vitest|it|describe|test|expect|mocha)\s*[!=]==?|globalThis\.(?:jest|vi|it|describe)\b|\bin\s+globalThis\b.*(?:jest|describe)", "asks whether it is tested"),
    (r"sys\.modules.*(?:pytest|unittest|nose|hypothesis)|(?:pytest|unittest|hypothesis)['\"]\s+(?:not\s+)?in\s+sys\.modules|Code\.ensure_loaded\?\(ExUnit|Process\.whereis\(ExUnit", "asks what is loaded"),
    (r"\$\{?(?:BATS_TEST|BATS_RUN|HARNESS_ACTIVE|SHUNIT|TEST_TMPDIR)\w*|\$INC\{\s*['\"]?Test|\$0\s*=~\s*.*\bt\b|package\.loaded\[?\s*\.?['\"]?(?:busted|luassert|luaunit)", "asks whether it is tested"),
    (r"require\.main.*(?:jest|mocha)|module\.parent.*(?:jest|mocha|test)|Class\.forName\(\"(?:org\.junit|org\.testng)", "asks what is loaded"),
]  # fmt: skip
_MAYBE_ENDED = [
    (r"\b(?:process\.exit|sys\.exit|exit|os\.Exit|System\.exit|Environment\.Exit|std::exit|_exit|_Exit|quick_exit|exit!)\s*\(\s*(?:0|EXIT_SUCCESS)?\s*\)", "ends the process as if all were well"),
    (r"\b(?:Math|Date|JSON|Number|String|Array|Object|Promise|RegExp|Map|Set|Symbol|Reflect|Intl|performance)\.(?:prototype\.)?\w+\s*=(?!=)"
     r"|\b(?:globalThis|global|window)\.(?:Date|Math|setTimeout|setInterval|fetch|Promise|JSON|performance|console)\s*=(?!=)|Object\.defineProperty\(\s*(?:\w+\.prototype|Math|Date|globalThis)", "replaces what the language has"),
    (r"^\s*(?:os|io|string|table|math|coroutine|debug|_G)\.\w+\s*=\s*(?:function|nil|\w)|\*(?:CORE::GLOBAL::|main::)\w+\s*=|^\s*no\s+warnings\s+['\"]redefine", "replaces what the language has"),
    (r"^\s*(?:class|module)\s+(?:Kernel|Object|BasicObject|String|Integer|Float|Array|Hash|Symbol|Time|Date|Comparable|Numeric|NilClass|Minitest|RSpec|Test::Unit)\b(?!::)(?!.*<)", "reopens what the language has"),
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
_ALWAYS_EQUAL = re.compile(
    r"""(?:\bequals|Equals|Equal|isEqual|IsEqual|\beq|equalTo|isEqualTo|operator\s*==|eql\?|equal\?|(?<=def\s)={2,3}|(?<=func\s)==)\s*(?:<[^>\n]*>)?\([^)\n]*\)[\w\s:&>?-]{0,60}?
    (?:\{\s*(?:return\s+)?true\b\s*;?\s*\}|=>?\s*true\b|(?:\n|;)\s*true\s*(?:\n|;)\s*end\b)""",
    re.VERBOSE,
)
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
    (r"^\s*//\s*\+build\s|^\s*//go:build\s(?!(?:[\s!()&|]*\b(?:windows|linux|darwin|unix|freebsd|amd64|arm64|go1[.\d]*|cgo|js|wasm|race)\b)+[\s)]*$)", "a test file is not built"),
    (r"#\[\s*ignore", "a test is ignored"),
    (r"#!?\[\s*cfg\(\s*(?:any\(\)|FALSE|feature\s*=\s*\"(?:never|disabled|none|off|ignore\w*|skip\w*)\")", "a test is not built"),
    (r"@(?:Disabled|Ignore)\b(?!On|If|For)|\bassumeTrue\(\s*false|\bassumeFalse\(\s*true|Assumptions\.abort\(|enabled\s*=\s*false", "a test is switched off"),
    (r"\bmarkTest(?:Skipped|Incomplete)\(|@requires\b.*nonexist|@group\s+(?:skip|disabled)", "a test is skipped"),
    (r"\bDISABLED_\w+|\bGTEST_SKIP\(\)|\[\.(?:hide)?\]|\[!(?:mayfail|shouldfail)\]", "a test is switched off"),
    (r"^\s*#\s*if\s+(?:0|false)\b|\bCHECK(?:ED)?_NOFAIL\b", "a test is not compiled or cannot fail"),
    (r"\[(?:Fact|Theory)\s*\([^)]*Skip\s*=|[\[,]\s*Ignore\b|Assert\.(?:Ignore|Inconclusive)\(", "a test is skipped"),
    (r"@tag\s+:?skip|@moduletag\s+:?skip|\bXCTSkip|\.disabled\(", "a test is skipped"),
    (r"^\s*(?:skip|pending)\s*(?:$|['\"(]|if\s+true|unless\s+false)", "a test is skipped"),
    (r"\bcollect_ignore(?:_glob)?\b|\bpytest_ignore_collect\b|\b__test__\s*=\s*False", "test files are left out"),
    (r"@(?:pytest\.mark\.)?(?:skip|xfail)\b|@(?:unittest\.)?(?:skip|expectedFailure)\b", "a test is switched off"),
]  # fmt: skip


_FORKS = re.compile(r"\bfork\w*\s*\(")


def find_in_source(change: Change, known: frozenset[str] = frozenset()) -> list[Cheat]:
    """Apply the rules for sources. `known` are lines that existed in any file before: a moved line is not new."""
    found = _match(change, _SUPPRESSED, "check-silenced", known)
    found += _match(change, _SNIFFED, "runner-sniffed", known)
    ended = _match(change, _ENDED, "runner-touched", known)
    forks = bool(_FORKS.search(change.after or ""))  # a forked process has to end so
    found += [
        msgspec.structs.replace(cheat, doubt=cheat.doubt or (forks and "_exit(" in cheat.detail)) for cheat in ended
    ]
    sure = {cheat.line for cheat in found}
    found += [cheat for cheat in _match(change, _MAYBE, "runner-sniffed", known) if cheat.line not in sure]
    ended = [cheat for cheat in _match(change, _MAYBE_ENDED, "runner-touched", known) if cheat.line not in sure]
    ended = [cheat for cheat in ended if not _PROGRAM.search(change.path)]
    return [*found, *ended, *_always_equal(change), *_swallowed(change)]


_ASKS = re.compile(r"\b(?:if|unless|while|when|return|assert)\b")  # it is called there, not defined


# `a == b || … || a != b` is true of everything.
_TAUTOLOGY = re.compile(
    r"\b(?P<left>\w+)\s*===?\s*(?P<right>\w+)\b.*(?:\|\||\bor\b).*\b(?P=left)\s*!==?\s*(?P=right)\b"
)


def _always_equal(change: Change) -> list[Cheat]:
    text, before = change.after or "", change.before or ""
    added = {line for line, _ in change.added()}
    lines = [line for line, row in change.added() if _TAUTOLOGY.search(row)]
    lines += [
        line
        for found in _ALWAYS_EQUAL.finditer(text)
        if (line := text.count("\n", 0, found.start()) + 1) in added
        and found[0] not in before
        and not _ASKS.search(text, text.rfind("\n", 0, found.start()) + 1, found.start())
    ]
    detail = "an equality is true of everything"
    return [Cheat(file=change.path, line=line, rule="always-equal", detail=detail) for line in lines]


# Programs end; libraries do not. A program that a test imports does neither.
_PROGRAM = re.compile(
    r"(?:^|/)(?:main|cli|__main__|index|app|server|program|manage|setup|gulpfile|rakefile)\.\w+$|(?:^|/)(?:bin|cmd|scripts?|tools?|examples?)/",
    re.IGNORECASE,
)


def find_in_test(change: Change, fresh: Sequence[TestCase] = ()) -> list[Cheat]:
    """Apply the rules for tests: an added line that disables something is enough. Python is parsed instead, and new
    files and tests remove nothing."""
    touched = _match(change, [rule for rule in _ENDED if "import" not in rule[0]], "runner-touched")
    new = [(case.line, case.last_line) for case in fresh if case.file == change.path]
    repeated = _match(change, _REPEATED, "retried")
    touched += [cheat for cheat in repeated if change.before is not None or cheat.detail.startswith("one example")]
    touched += [*_written_by_test(change), *_shadowed(change)]
    if change.path.endswith(".py") or change.before is None:
        return touched
    off = [_on_condition(cheat, change) for cheat in _match(change, _OFF, "test-disabled")]
    off = [cheat and msgspec.structs.replace(cheat, doubt=cheat.doubt or "not built" in cheat.detail) for cheat in off]
    return [
        *touched,
        *(cheat for cheat in off if cheat and not any(first <= cheat.line <= last for first, last in new)),
    ]


_REPEATED = [
    (r"\bretryTimes\s*\(|\.retries\s*\(\s*[1-9]|\bretry:\s*[1-9]|@(?:pytest\.mark\.)?flaky|\breruns\s*=|@Retry\w*|failureThreshold\s*=|RetryAnalyzer|FlakyTest"
     r"|\bretry_count|rspec-retry|@RepeatedIfExceptions|mark\.flaky", "a test is repeated until it passes"),
    (r"max_examples\s*=\s*[1-3]\b|numRuns:\s*[1-3]\b|\b(?:QUICKCHECK_TESTS|tests)\s*=\s*[1-3]\b.*(?:check|prop)|max_runs:\s*[1-3]\b|\bmaxSuccess\s*=\s*[1-3]\b|withMaxSuccess\s+[1-3]\b|with_cases\(\s*[1-3]\s*\)|MaxCount:\s*[1-3]\b"
     r"|fc\.property\(\s*fc\.constant|MaxTest\s*=\s*[1-3]\b|@Property\(tries\s*=\s*[1-3]\b|@(?:hypothesis\.)?given\(\s*(?:\w+\s*=\s*)?(?:st\.|strategies\.)?just\([^()]*\)\s*\)|phases=\[?\(?Phase\.explicit", "one example is all that is tried"),
]  # fmt: skip
_WRITES = re.compile(
    r"\b(?:write_text|write_bytes|WriteFile|writeFileSync|writeFile|file_put_contents|File\.write!?|fs::write|WriteAllText|Files\.write\w*|IO\.write)\b(?P<what>[^\n]*)"
)
_RECORDED = re.compile(r"(?i)golden|expected|snapshot|\bsnap\b|fixture|testdata|baseline|\bwant")
_ON_REQUEST = re.compile(r"\bif\b.*(?i:update|regen|record|bless|overwrite|rewrite|env)")


def _written_by_test(change: Change) -> list[Cheat]:
    """Find a recorded answer that the test writes itself, unless the spec requests it."""
    lines = split_lines(change.after or "")
    known = {line.strip() for line in split_lines(change.before or "")}
    found = []
    for number, line in change.added():
        written = _WRITES.search(line)
        above = " ".join(lines[max(0, number - 4) : number])
        subject = f"{line[: written.start()]} {written['what'].partition(',')[0]}" if written else ""
        if written and line.strip() not in known and _RECORDED.search(subject) and not _ON_REQUEST.search(above):
            detail = f"the test writes what it compares with: {line.strip()[:120]}"
            found.append(Cheat(file=change.path, line=number, rule="golden-written", detail=detail, doubt=True))
    return found


_MINE = re.compile(
    r"^(?:\s+)(?:def|function|func|fn|const|let|var|val)\s+(?P<name>[A-Za-z_]\w*)\s*(?:\(|=\s*(?:\([^)]*\)|\w+)\s*=>|:?=\s*func)"
)


def _shadowed(change: Change) -> list[Cheat]:
    """Find a function that the file imports and that is redefined inside a test: the test then checks only itself."""
    text = change.after or ""
    imported = {
        name
        for names in re.findall(
            r"(?m)^\s*(?:from\s+\S+\s+import\s+|import\s*\{?|use\s+|(?:const|let|var)\s*\{)([^;\n}=]*)", text
        )
        for name in re.findall(r"\w+", names)
    }
    return [
        Cheat(
            file=change.path,
            line=number,
            rule="hollow-test",
            detail=f"the test makes its own {found['name']}",
            doubt=True,
        )
        for number, line in change.added()
        if (found := _MINE.match(line)) and found["name"] in imported
    ]


_ABOUT_MACHINE = re.compile(
    r"GOOS|GOARCH|platform|isWindows|IsWindows|Windows|windows|win32|Short\(\)|OSTYPE|_WIN32|darwin|linux|RUBY_ENGINE|RUBY_PLATFORM|RUBY_VERSION|jruby|PHP_OS|PHP_VERSION|version_compare"
    r"|extension_loaded|LookPath|find_executable|which\b|command -v|OTP|System\.version|OS\.|DisabledOn|#available|canImport|targetEnvironment|os\(|getuid|Getuid|root|musl|miri|JRE|process\.version|libc"
)
# Skips everywhere except on a made-up platform.
_RARE_MACHINE = re.compile(r"""!=+\s*["'](?!linux|windows|win32|darwin|macos|amd64|x86_64|arm64)""", re.IGNORECASE)
_NEVER = re.compile(r"\btrue\b|\bfalse\b|1\s*==\s*1|\bif\s*\(?\s*1\b")


def _on_condition(cheat: Cheat, change: Change) -> Cheat | None:
    """Judge a skip with a condition: honest if it is about the machine, otherwise a doubt."""
    lines = split_lines(change.after or "")
    here, above = lines[cheat.line - 1], "\n".join(lines[max(0, cheat.line - 3) : cheat.line - 1])
    asked = here if re.search(r"\b(?:if|unless|when)\b|DisabledOn|skipIf|runIf", here) else ""
    if not asked and (found := re.findall(r"^.*\b(?:if|unless|guard|when)\b.*$", above, re.MULTILINE)):
        asked = found[-1]
    if not asked or _NEVER.search(asked):
        return cheat
    return (
        None
        if _ABOUT_MACHINE.search(asked) and not _RARE_MACHINE.search(asked)
        else msgspec.structs.replace(cheat, doubt=True)
    )


def _match(change: Change, rules: list[tuple[str, str]], rule: str, known: frozenset[str] = frozenset()) -> list[Cheat]:
    """Match a line, unless it was only moved."""
    before = known.union(line.strip() for line in split_lines(change.before or ""))
    found = []
    for line, text in change.added():
        what = next((what for pattern, what in rules if re.search(pattern, text)), "")
        if what and text.strip() not in before:
            doubt = (rules is _SUPPRESSED and not _WHOLE.search(text)) or rules in (_MAYBE, _MAYBE_ENDED)
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
            return [Cheat(file=change.path, line=line, rule="error-swallowed", detail=what, doubt=True)]
    return []
