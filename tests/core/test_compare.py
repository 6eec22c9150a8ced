"""What counts as red for the right reason, and as green for good."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ratchet.core.compare import (
    RED_MAX,
    Judgement,
    abbreviate,
    compare,
    failing,
    judge_fix,
    judge_green,
    judge_red,
    missing_package,
    why_inconclusive,
)
from ratchet.core.failure import RevertOutcome
from ratchet.core.report import (
    Diagnostic,
    Failure,
    Report,
    ReportStatus,
    TestResult,
    TestStatus,
    count_totals,
    decide_status,
    fingerprint,
    report_digest,
)
from ratchet.core.roles import PathRules

SCOPE = PathRules(tests=("tests/**",))
S = TestStatus


def report(
    statuses: dict[str, TestStatus], *, failure: Failure | None = None, broken: list[Diagnostic] | None = None
) -> Report:
    tests = [
        TestResult(id=name, status=status, file=name.split("::")[0], failure=failure)
        for name, status in statuses.items()
    ]
    red = broken or any(status in (S.FAILED, S.ERROR) for status in statuses.values())
    status = ReportStatus.FAILED if red else ReportStatus.PASSED
    return Report(runner="pytest", status=status, tests=tests, collection_errors=broken or [])


BASE = report({"tests/a.py::one": S.PASSED, "tests/a.py::old_red": S.FAILED})
ASSERTION = Failure(type="AssertionError", message="assert 1 == 2", file="tests/b.py", line=3)


def test_a_new_test_that_fails_by_assertion_is_rightly_red() -> None:
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.FAILED}, failure=ASSERTION)
    verdict = judge_red(BASE, after, SCOPE)
    assert verdict.ok and verdict.tests == ["tests/b.py::new"]


def test_a_new_file_that_lacks_only_the_thing_under_test_is_rightly_red() -> None:
    lacking = Diagnostic(file="tests/b.py", type="ImportError", message="cannot import name 'sub'")
    verdict = judge_red(BASE, report({"tests/a.py::one": S.PASSED}, broken=[lacking]), SCOPE)
    assert verdict.ok and verdict.tests == ["tests/b.py"]


def test_a_test_file_with_a_syntax_error_is_refused() -> None:
    torn = Diagnostic(file="tests/b.py", line=4, type="SyntaxError", message="invalid syntax")
    verdict = judge_red(BASE, report({"tests/a.py::one": S.PASSED}, broken=[torn]), SCOPE)
    assert not verdict.ok and "tests/b.py:4 is broken: SyntaxError" in verdict.why


GO = PathRules(tests=("**/*_test.go",))
GO_BASE = report({"pkg.TestOne": S.PASSED, "pkg.TestTwo": S.PASSED})


def uncompiled(message: str, file: str = "shout_test.go", code: str = "") -> Report:
    """What remains of a package when one of its test files does not compile: no test."""
    error = Diagnostic(file=file, line=6, message=message, code=code)
    return Report(runner="go", status=ReportStatus.FAILED, compile_errors=[error])


@pytest.mark.parametrize(
    ("message", "code"),
    [("undefined: Shout", ""), ("unknown field Loud in struct literal", ""),
     ("unresolved import `strsim::shout`", "E0432"),
     ("cannot find function `shout` in crate `strsim`", "E0425"), ("cannot find symbol", ""),
     ("x.Shout undefined (type Word has no field or method Shout)", ""), ("no member named 'shout' in 'Word'", "")],
)  # fmt: skip
def test_a_compiled_test_that_lacks_only_the_thing_under_test_is_rightly_red(message: str, code: str) -> None:
    verdict = judge_red(GO_BASE, uncompiled(message, code=code), GO)
    assert (verdict.ok, verdict.tests) == (True, ["shout_test.go"]), verdict.why
    done = report({"pkg.TestOne": S.PASSED, "pkg.TestTwo": S.PASSED, "pkg.TestShout": S.PASSED})
    assert judge_green(GO_BASE, done, verdict.tests).ok
    assert not judge_green(GO_BASE, GO_BASE, verdict.tests).ok, "the new test must be there"
    assert not judge_green(GO_BASE, report({"pkg.TestOne": S.PASSED, "pkg.TestShout": S.PASSED}), verdict.tests).ok


def test_the_tests_of_a_file_that_did_not_compile_are_found_by_the_name_of_their_program() -> None:
    """In the last check they are no longer new."""

    def ran(status: TestStatus) -> Report:
        test = TestResult(id="shouts", suite=["strsim::shout"], status=status)
        return Report(runner="cargo", status=ReportStatus.PASSED, tests=[test])

    assert judge_green(ran(S.PASSED), ran(S.PASSED), ["tests/shout.rs"]).ok
    assert not judge_green(ran(S.PASSED), ran(S.PASSED), ["tests/whisper.rs"]).ok


@pytest.mark.parametrize(
    ("message", "file"),
    [("syntax error: unexpected }", "shout_test.go"), ("unresolved import `serde`", "shout_test.go"),
     ("use of unresolved module or unlinked crate `serde`", "shout_test.go"), ("undefined: Shout", "word.go")],
)  # fmt: skip
def test_a_compiled_test_that_is_broken_itself_is_refused_with_what_the_compiler_says(message: str, file: str) -> None:
    verdict = judge_red(GO_BASE, uncompiled(message, file), GO)
    assert not verdict.ok and f"{file}:6 does not compile: {message}" in verdict.why


def test_a_new_test_that_passes_already_is_refused() -> None:
    verdict = judge_red(BASE, report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.PASSED}), SCOPE)
    assert not verdict.ok and "already passes" in verdict.why


def test_no_new_test_is_refused() -> None:
    assert "no new test" in judge_red(BASE, report({"tests/a.py::one": S.PASSED}), SCOPE).why


def test_breaking_an_old_test_while_adding_one_is_refused() -> None:
    after = report({"tests/a.py::one": S.FAILED, "tests/b.py::new": S.FAILED}, failure=ASSERTION)
    assert "no longer" in judge_red(BASE, after, SCOPE).why


def test_a_misspelt_name_inside_the_test_is_refused() -> None:
    typo = Failure(type="NameError", message="name 'clac' is not defined", file="tests/b.py")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.FAILED}, failure=typo)
    assert "never defined" in judge_red(BASE, after, SCOPE).why


def test_a_missing_fixture_is_refused() -> None:
    setup = Failure(type="FixtureLookupError", message="fixture 'x' not found")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.ERROR}, failure=setup)
    assert "outside the test itself" in judge_red(BASE, after, SCOPE).why


def test_a_run_that_crashed_gives_no_verdict_either_way() -> None:
    crashed = Report(runner="pytest", status=ReportStatus.CRASHED, running=["tests/a.py::one"])
    assert "died" in judge_red(BASE, crashed, SCOPE).why and "tests/a.py::one" in judge_green(BASE, crashed, []).why


ABSENT = (
    "undefined: Ordinal",  # Go
    "cannot find function `digit_sum` in crate `num`",
    "unresolved import `num::digit_sum`",
    "cannot find symbol",  # Java
    "use of undeclared identifier 'gcd'",
    "error: 'gcd' was not declared in this scope",
    "Unresolved reference: total",
    "Died: Undefined subroutine &Dur::seconds called",
)


@pytest.mark.parametrize("message", ABSENT)
def test_tests_of_one_program_that_does_not_compile_for_want_of_the_thing_under_test_are_not_lost(message: str) -> None:
    lacking = Diagnostic(file="tests/b.go", message=message)
    verdict = judge_red(BASE, report({}, broken=[lacking]), SCOPE)
    assert verdict.ok and verdict.tests == ["tests/b.go"]


@pytest.mark.parametrize(
    ("file", "message"), [("tests/b.go", "expected ';', found newline"), ("src/b.go", "undefined: Ordinal")]
)
def test_a_program_that_does_not_compile_for_another_reason_loses_its_tests(file: str, message: str) -> None:
    assert not judge_red(BASE, report({}, broken=[Diagnostic(file=file, message=message)]), SCOPE).ok


def test_an_error_for_want_of_a_method_is_rightly_red() -> None:
    wanting = Failure(type="NoMethodError", message="undefined method `vowels' for Words:Module", file="tests/b.rb")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.rb::new": S.ERROR}, failure=wanting)
    assert judge_red(BASE, after, SCOPE).ok


def test_green_needs_every_red_test_to_pass() -> None:
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.FAILED})
    assert "still red" in judge_green(BASE, after, ["tests/b.py::new"]).why


def test_failures_of_the_base_do_not_count_against_a_change() -> None:
    after = report({"tests/a.py::one": S.PASSED, "tests/a.py::old_red": S.FAILED, "tests/b.py::new": S.PASSED})
    assert judge_green(BASE, after, ["tests/b.py::new"]).ok


def test_a_test_that_is_skipped_xfailed_or_gone_is_not_green() -> None:
    for status in (S.SKIPPED, S.XFAILED, S.TODO):
        after = report({"tests/a.py::one": status, "tests/b.py::new": S.PASSED})
        assert "no longer" in judge_green(BASE, after, ["tests/b.py::new"]).why
    assert "no longer" in judge_green(BASE, report({"tests/b.py::new": S.PASSED}), ["tests/b.py::new"]).why


def test_a_file_that_was_red_is_green_when_it_loads_and_all_in_it_passes() -> None:
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.PASSED})
    assert judge_green(BASE, after, ["tests/b.py"]).ok
    empty = report({"tests/a.py::one": S.PASSED})
    assert not judge_green(BASE, empty, ["tests/b.py"]).ok


def test_compare_distinguishes_new_still_fixed_added_missing_and_silenced() -> None:
    before = report({"a": S.PASSED, "b": S.FAILED, "c": S.FAILED, "d": S.PASSED, "e": S.PASSED})
    delta = compare(before, report({"a": S.FAILED, "b": S.FAILED, "c": S.PASSED, "d": S.SKIPPED, "f": S.PASSED}))
    assert (delta.new_failures, delta.still_failing, delta.fixed) == (["a"], ["b"], ["c"])
    assert (delta.silenced, delta.added, delta.missing) == (["d"], ["f"], ["e"])


def test_a_digest_ignores_times_and_order_and_sees_every_status() -> None:
    one = report({"a": S.PASSED, "b": S.PASSED})
    assert report_digest(one) == report_digest(report({"b": S.PASSED, "a": S.PASSED}))
    assert report_digest(one) != report_digest(report({"a": S.PASSED, "b": S.SKIPPED}))


def test_a_fingerprint_survives_another_folder_and_another_address() -> None:
    def red(message: str) -> Report:
        return report({"a": S.FAILED}, failure=Failure(type="AssertionError", message=message))

    here, there = red("<Point at 0x7f01> in /tmp/x1/calc.py"), red("<Point at 0x7e99> in /home/me/calc.py")
    assert fingerprint(here, ["a"]) == fingerprint(there, ["a"]) != fingerprint(red("other"), ["a"])


def test_only_agreement_of_records_end_and_exit_code_is_a_pass() -> None:
    passed = [TestResult(id="a", status=S.PASSED)]
    failed = [TestResult(id="a", status=S.FAILED)]

    def verdict(tests: list[TestResult], code: int, *, ended: bool = True, notes: tuple[str, ...] = ()) -> str:
        return decide_status(tests=tests, broken=0, exit_code=code, ended=ended, timed_out="", notes=list(notes))

    assert verdict(passed, 0) == "passed"
    assert verdict(failed, 1) == "failed"
    assert verdict(failed, 0) == verdict(passed, 1) == verdict(passed, 0, notes=("x",)) == "inconsistent"
    assert verdict(passed, 0, ended=False) == "crashed"
    assert verdict([], 0) == "no_tests"


def test_totals_are_counted_from_the_records() -> None:
    totals = count_totals(TestResult(id=str(n), status=status) for n, status in enumerate(S))
    assert totals.tests == 7 and totals.errors == totals.todo == totals.xpassed == 1


def named(name: str, status: TestStatus = S.PASSED, **more: str) -> TestResult:
    return TestResult(id=f"tests/a.py::{name}", name=name, status=status, **more)  # type: ignore[arg-type]


def of(*tests: TestResult) -> Report:
    return Report(runner="pytest", status=ReportStatus.PASSED, tests=list(tests))


def test_a_test_with_the_same_body_under_another_name_is_renamed_and_not_lost() -> None:
    delta = compare(of(named("old", body="b")), of(named("new", body="b")))
    assert delta.renamed == [("tests/a.py::old", "tests/a.py::new")]
    assert delta.lost() == delta.added == []


def test_a_renamed_test_that_now_fails_or_is_skipped_is_lost_under_its_new_name() -> None:
    before = of(named("old", body="b"), named("other", body="c"))
    after = of(named("new", S.FAILED, body="b"), named("else", S.SKIPPED, body="c"))
    delta = compare(before, after)
    assert delta.new_failures == ["tests/a.py::new"]
    assert delta.silenced == ["tests/a.py::else"]


def test_two_tests_with_one_body_are_not_guessed_apart() -> None:
    delta = compare(of(named("one", body="b"), named("two", body="b")), of(named("three", body="b")))
    assert delta.renamed == []
    assert delta.missing == ["tests/a.py::one", "tests/a.py::two"]


def test_parameters_keep_their_place_in_a_rename() -> None:
    before = of(named("old[1]", body="b"), named("old[2]", body="b"))
    after = of(named("new[1]", body="b"), named("new[2]", body="b"))
    assert [new[-3:] for _, new in compare(before, after).renamed] == ["[1]", "[2]"]


def test_without_source_the_same_failure_under_another_name_is_a_rename() -> None:
    before, after = report({"t::old": S.FAILED}, failure=ASSERTION), report({"t::new": S.FAILED}, failure=ASSERTION)
    delta = compare(before, after)
    assert delta.renamed == [("t::old", "t::new")]
    assert delta.still_failing == ["t::new"]


def test_a_file_of_tests_that_loaded_before_must_still_load() -> None:
    torn = Diagnostic(file="tests/c.py", type="SyntaxError", message="invalid syntax")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.PASSED}, broken=[torn])
    verdict = judge_green(BASE, after, ["tests/b.py::new"])
    assert (verdict.ok, verdict.why) == (False, "files no longer load: tests/c.py")


def test_an_unknown_test_that_fails_is_a_new_failure() -> None:
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.PASSED, "tests/c.py::other": S.FAILED})
    verdict = judge_green(BASE, after, ["tests/b.py::new"])
    assert (verdict.ok, verdict.why) == (False, "new failures: tests/c.py::other")


def test_one_requirement_has_room_for_a_hundred_failing_cases_and_not_for_more() -> None:
    def verdict(count: int) -> Judgement:
        cases = {f"tests/b.py::new[{number}]": S.FAILED for number in range(count)}
        return judge_red(BASE, report({"tests/a.py::one": S.PASSED, **cases}, failure=ASSERTION), SCOPE)

    assert verdict(RED_MAX).ok and len(verdict(RED_MAX).tests) == RED_MAX
    assert verdict(RED_MAX + 1).why == f"{RED_MAX + 1} new tests fail: write one test for one requirement"


def test_a_setup_that_lacks_the_thing_under_test_is_rightly_red() -> None:
    lacking = Failure(type="AttributeError", message="no attribute 'sub'")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.ERROR}, failure=lacking)
    assert judge_red(BASE, after, SCOPE).ok


def test_an_undefined_name_in_the_source_is_rightly_red() -> None:
    missing = Failure(type="NameError", message="name 'sub' is not defined", file="src/calc.py")
    after = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.FAILED}, failure=missing)
    assert judge_red(BASE, after, SCOPE).ok


def test_a_fix_is_kept_when_one_of_the_failing_tests_passes() -> None:
    before = report({"one": S.PASSED, "two": S.FAILED, "three": S.FAILED})
    after = report({"one": S.PASSED, "two": S.PASSED, "three": S.FAILED})
    assert judge_fix(before, after, ["two", "three"]) == Judgement(ok=True, tests=["two"])
    assert judge_fix(before, before, ["two", "three"]).why == "still red: two, three"


def test_a_fix_that_breaks_or_loses_something_is_not_kept() -> None:
    before = report({"one": S.PASSED, "two": S.FAILED})
    assert "no longer does: one" in judge_fix(before, report({"two": S.PASSED}), ["two"]).why
    torn = Diagnostic(file="c.py", type="SyntaxError", message="invalid syntax")
    after = report({"one": S.PASSED, "two": S.PASSED}, broken=[torn])
    assert "no longer does: c.py" in judge_fix(before, after, ["two"]).why
    more = report({"one": S.PASSED, "two": S.PASSED, "new": S.FAILED})
    assert judge_fix(before, more, ["two"]).why == "new failures: new"


def test_a_file_that_loads_again_is_fixed_although_unknown_tests_in_it_fail() -> None:
    torn = Diagnostic(file="c.py", type="SyntaxError", message="invalid syntax")
    before = report({"one": S.PASSED}, broken=[torn])
    after = report({"one": S.PASSED, "c.py::two": S.PASSED, "d.py::three": S.PASSED})
    assert judge_fix(before, after, ["c.py"]) == Judgement(ok=True, tests=["c.py"])
    hidden = report({"one": S.PASSED, "c.py::two": S.PASSED, "c.py::three": S.FAILED})
    assert judge_fix(before, hidden, ["c.py"]).ok


def test_tests_that_could_not_run_at_all_are_fixed_when_they_run() -> None:
    crashed = Report(runner="pytest", status=ReportStatus.CRASHED)
    assert judge_fix(crashed, report({"one": S.FAILED}), ["one"]).ok
    assert "died" in judge_fix(report({"one": S.FAILED}), crashed, ["one"]).why


def test_what_fails_is_the_tests_and_the_files_that_do_not_load() -> None:
    torn = [Diagnostic(file=name, type="SyntaxError", message="") for name in ("z.py", "c.py", "", "one")]
    assert failing(report({"one": S.FAILED, "two": S.ERROR, "three": S.PASSED}, broken=torn)) == [
        "one",
        "two",
        "c.py",
        "z.py",
    ]


def test_of_many_names_five_are_shown_and_the_others_counted() -> None:
    assert abbreviate(list("abcde")) == "a, b, c, d, e"
    assert abbreviate(list("abcdefg")) == "a, b, c, d, e and 2 more"


def test_an_inconclusive_run_says_what_was_noted_and_what_was_running() -> None:
    timeout = Report(runner="pytest", status=ReportStatus.TIMEOUT, notes=["killed after 5 s"], running=["a", "b"])
    assert why_inconclusive(timeout) == (
        "the tests did not finish in time: killed after 5 s; while running a; while running b"
    )
    assert why_inconclusive(report({"a": S.PASSED})) == ""
    for status in ReportStatus:
        conclusive = status in (ReportStatus.PASSED, ReportStatus.FAILED)
        assert bool(why_inconclusive(Report(runner="pytest", status=status))) is not conclusive, status


def test_no_rejection_is_an_acceptance() -> None:
    lost = report({"tests/b.py::new": S.FAILED}, failure=ASSERTION)
    crashed = Report(runner="pytest", status=ReportStatus.CRASHED)
    passes = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.PASSED})
    torn = report({"tests/a.py::one": S.PASSED}, broken=[Diagnostic(file="tests/b.py", type="SyntaxError", message="")])
    undefined = Failure(type="NameError", message="x", file="tests/b.py")
    typo = report({"tests/a.py::one": S.PASSED, "tests/b.py::new": S.FAILED}, failure=undefined)
    nothing = report({"tests/a.py::one": S.PASSED})
    for after in (lost, crashed, passes, torn, typo, nothing):
        assert not judge_red(BASE, after, SCOPE).ok
    for after in (lost, crashed, torn, typo, nothing):
        assert not judge_green(BASE, after, ["tests/b.py::new"]).ok
        assert not judge_fix(BASE, after, ["tests/b.py::new"]).ok
    assert judge_green(BASE, passes, ["tests/b.py::new"]).tests == ["tests/b.py::new"]


NEW = "tests/b.py::new"


def red_with(failure: Failure, status: TestStatus = S.FAILED, name: str = NEW) -> Report:
    after = report({"tests/a.py::one": S.PASSED, "tests/a.py::old_red": S.FAILED})
    test = TestResult(id=name, status=status, file=name.partition("::")[0], failure=failure)
    return Report(runner="pytest", status=ReportStatus.FAILED, tests=[*after.tests, test])


@pytest.mark.parametrize(
    ("failure", "status", "why"),
    [
        (Failure(type="IndentationError", message="odd"), S.FAILED, "the test is broken: IndentationError: odd"),
        (Failure(type="TabError", message="odd"), S.ERROR, "the test is broken: TabError: odd"),
        (Failure(type="NameError", message="x", file="tests/b.py"), S.FAILED,
         "the test names something it never defined or imported: x"),
        (Failure(type="OSError", message="no port"), S.ERROR, "it fails outside the test itself (call): no port"),
    ],
)  # fmt: skip
def test_a_test_that_fails_for_the_wrong_reason_is_refused_with_it(
    failure: Failure, status: TestStatus, why: str
) -> None:
    assert judge_red(BASE, red_with(failure, status), SCOPE) == Judgement(ok=False, why=f"{NEW}: {why}")


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (Failure(type="OSError", message="no port"), S.FAILED),
        (Failure(type="TypeError", message="unexpected keyword"), S.ERROR),
        (Failure(type="NotImplementedError"), S.ERROR),
        (Failure(type="Error", message="total is not a function"), S.ERROR),
        (Failure(type="NameError", message="x", file="src/a.py"), S.FAILED),
    ],
)
def test_a_test_that_fails_by_itself_or_for_want_of_code_is_red(failure: Failure, status: TestStatus) -> None:
    assert judge_red(BASE, red_with(failure, status), SCOPE) == Judgement(ok=True, tests=[NEW])


def test_a_package_that_is_not_the_projects_own_is_no_missing_behaviour() -> None:
    def verdict(message: str, *, ours: bool = False, kind: str = "ModuleNotFoundError") -> str:
        after = red_with(Failure(type=kind, message=message))
        return judge_red(BASE, after, SCOPE, is_ours=lambda name: ours or name == "mine").why

    refused = f"{NEW} fails because the package 'numpy.linalg' cannot be imported, not because of missing behaviour"
    assert verdict("No module named 'numpy.linalg'") == refused
    assert verdict("No module named numpy.linalg", kind="ImportError") == refused
    assert verdict("No module named 'mine'") == verdict("Cannot find module './sum'") == ""
    assert verdict("No module named 'numpy'", kind="AssertionError") == "", "it says so by itself"
    assert "'left-pad'" in verdict("cannot find package 'left-pad' imported from a.mjs")
    assert "'x'" in verdict("No module named 'x' (src/app.py:1)", ours=True), "the source imports it, not the test"
    assert verdict("No module named 'x' (tests/b.py:1)", ours=True) == ""


def test_a_file_that_cannot_import_another_package_is_refused() -> None:
    lacking = Diagnostic(file="tests/b.py", type="ModuleNotFoundError", message="No module named 'numpy'")
    after = report({"tests/a.py::one": S.PASSED}, broken=[lacking])
    assert judge_red(BASE, after, SCOPE, is_ours=lambda _: False).why.startswith("tests/b.py fails because the package")
    assert judge_red(BASE, after, SCOPE).tests == ["tests/b.py"]
    before = report({"tests/a.py::one": S.PASSED}, broken=[lacking])
    assert judge_red(before, after, SCOPE, is_ours=lambda _: False).why == "no new test was found in the suite"


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("No module named 'a.b'", "a.b"), ("No module named a.b", "a.b"), ("Cannot find module '@x/y' from z", "@x/y"),
        ("Cannot find package 'p' imported", "p"), ("Cannot find module './a'", ""), ("Cannot find module '/a'", ""),
        ("cannot import name 'x'", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_package_that_is_missing_is_named_by_the_failure(message: str, package: str) -> None:
    assert missing_package(message) == package


def test_what_does_not_load_is_refused_with_its_place() -> None:
    torn = Diagnostic(file="tests/b.py", line=3, type="SyntaxError", message="bad")
    after = report({"tests/a.py::one": S.PASSED}, broken=[torn])
    assert judge_red(BASE, after, SCOPE).why == "tests/b.py:3 is broken: SyntaxError: bad"
    torn = Diagnostic(file="tests/b.go", type="", message="bad")
    assert judge_red(BASE, report({}, broken=[torn]), SCOPE).why == "tests/b.go does not compile: bad"
    assert judge_red(BASE, report({"tests/b.py::x": S.PASSED}), SCOPE).why == (
        "tests that passed before no longer do: tests/a.py::one"
    )


def test_what_is_not_new_is_not_red() -> None:
    assert judge_red(BASE, BASE, SCOPE).why == "no new test was found in the suite"
    passes = report({"tests/a.py::one": S.PASSED, **{f"tests/b.py::n{n}": S.PASSED for n in range(6)}})
    shown = ", ".join(f"tests/b.py::n{n}" for n in range(5))
    assert judge_red(BASE, passes, SCOPE).why == f"the new test already passes: {shown} and 1 more"


def test_a_rejected_green_says_of_which_kind_it_is() -> None:
    still = judge_green(BASE, report({"tests/a.py::one": S.PASSED, NEW: S.FAILED}), [NEW, "tests/c.py::x"])
    assert (still.why, still.outcome) == (f"still red: {NEW}, tests/c.py::x", RevertOutcome.STILL_RED)
    lost = judge_green(BASE, report({NEW: S.PASSED}), [NEW])
    assert (lost.why, lost.outcome) == (
        "tests that passed before no longer do: tests/a.py::one", RevertOutcome.BROKE_OTHERS,
    )  # fmt: skip
    fix = judge_fix(BASE, BASE, ["tests/a.py::old_red"])
    assert fix.outcome is RevertOutcome.STILL_RED


def test_a_red_file_that_did_not_compile_is_green_when_the_tests_called_as_it_pass() -> None:
    def green(*tests: TestResult, name: str = "pkg/sum_test.go") -> bool:
        before = of(named("one"))
        return judge_green(before, of(named("one"), *tests), [name]).ok

    assert green(named("added")) and green(named("x", suite=["sum_test"]))  # type: ignore[arg-type] # a list
    assert not green() and not green(named("added", S.SKIPPED))
    assert not green(named("added"), name="pkg/sum_test.py"), "where nothing is compiled a file has its own tests"
    assert not green(named("x", S.SKIPPED, suite=["sum_test"]), named("added"))  # type: ignore[arg-type] # a list


def test_renames_are_found_by_source_first_and_by_failure_only_without_it() -> None:
    same = Failure(type="E", message="m", expected="1", actual="2")

    def one(name: str, **more: Any) -> TestResult:
        usual: dict[str, Any] = {"id": name, "name": name, "status": S.FAILED, "failure": same}
        return TestResult(**usual | more)

    def renamed(before: TestResult, after: TestResult) -> bool:
        return compare(of(before), of(after)).renamed == [(before.id, after.id)]

    assert renamed(one("a"), one("b"))
    for other in ({"actual": "3"}, {"expected": "3"}, {"type": "F"}, {"message": "n"}):
        assert not renamed(one("a"), one("b", failure=msgspec.structs.replace(same, **other)))
    silent = msgspec.structs.replace(same, message="")
    assert not renamed(one("a", failure=silent), one("b", failure=silent))
    assert not renamed(one("a", failure=None), one("b", failure=None))
    assert not renamed(one("a", target="x"), one("b", target="y"))
    assert renamed(one("a", body="s"), one("b", body="s", failure=None, status=S.PASSED))
    assert not renamed(one("a", body="s"), one("b", body="t")), "their failures are alike, their sources are not"
    assert not renamed(one("a", body="s", target="x"), one("b", body="s", target="y"))
    assert not renamed(one("a[1]", body="s"), one("b[2]", body="s"))
