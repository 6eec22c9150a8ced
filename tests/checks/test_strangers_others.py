"""What projects of strangers in Go, Rust, Ruby, PHP, Perl and others showed, each made as small as it can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.core.report import TestResult, TestStatus
from tests.checks.support import needs, red, run, statuses
from tests.checks.test_detect import lay

pytestmark = pytest.mark.toolchain

BROKEN = 'RSpec.describe("b") { it("is never seen") {} }\nrequire "nowhere/to/be/found"\n'


def test_a_spec_that_does_not_load_keeps_no_other_from_running(tmp_path: Path) -> None:
    needs("rspec")
    good = 'RSpec.describe("a") { it("is run") {}; it("fails") { expect(1).to eq 2 } }\n'
    folder = lay(tmp_path / "it", {".rspec": "", "spec/a_spec.rb": good, "spec/b_spec.rb": BROKEN})
    report = run(folder)
    assert statuses(report) == {"spec/a_spec.rb[1:1]": "passed", "spec/a_spec.rb[1:2]": "failed"}
    assert [(error.file, error.line) for error in report.collection_errors] == [("spec/b_spec.rb", 2)]
    assert (report.status, report.exit_code) == ("failed", 1)


EXITS = """RSpec.describe "it" do
  it("fails") { expect(1).to eq 2 }
  it("waits for it") { pending "later"; raise "not yet" }
  it("leaves") { exit }
  it("mocks") { a = double("a"); expect(a).to receive(:b).with(1); a.b(2) }
end
"""


def test_a_test_of_rubys_that_leaves_is_placed_where_it_is_written_and_not_where_others_failed(tmp_path: Path) -> None:
    needs("rspec")
    report = run(lay(tmp_path / "rspec", {".rspec": "", "spec/it_spec.rb": EXITS}))
    assert report.status == "crashed"
    assert red(report)["spec/it_spec.rb[1:3]"] == ("spec/it_spec.rb", 4, None, None)
    report = run(tmp_path / "rspec", only={"rspec": [TestResult(id="spec/it_spec.rb[1:4]", status=TestStatus.TODO)]})
    assert red(report) == {"spec/it_spec.rb[1:4]": ("spec/it_spec.rb", 5, "(1)", "(2)")}
    written = "require 'minitest/autorun'\nclass T < Minitest::Test\n  i_suck_and_my_tests_are_order_dependent!\n"
    bodies = "  def test_a = assert_equal(1, 2)\n  def test_b = exit!(0)\n  def teardown = raise('late')\nend\n"
    report = run(lay(tmp_path / "minitest", {"test/it_test.rb": written + bodies}))
    assert (report.status, statuses(report)["T#test_a"]) == ("crashed", "failed")
    assert red(report)["T#test_b"] == ("test/it_test.rb", 5, None, None)


CASES = """<?php
class CasesTest extends PHPUnit\\Framework\\TestCase {
    public function testCovers(): void { $this->assertTrue(true); }
    public function testThrows(): void { $this->expectException(LogicException::class); throw new Error('other'); }
    public function testLeaves(): void { if (getenv('CI')) { exit(0); } $this->assertTrue(true); }
}
"""


def test_what_phpunit_calls_risky_has_passed_and_a_test_that_leaves_is_placed(tmp_path: Path) -> None:
    needs("phpunit")
    settings = (
        '<phpunit forceCoversAnnotation="true"><testsuite name="a"><directory>tests</directory></testsuite></phpunit>'
    )
    folder = lay(tmp_path / "it", {"phpunit.xml": settings, "tests/CasesTest.php": CASES})
    report = run(folder)
    assert statuses(report) == {
        "CasesTest::testCovers": "passed",
        "CasesTest::testThrows": "failed",
        "CasesTest::testLeaves": "passed",
    }
    assert red(report)["CasesTest::testThrows"] == ("tests/CasesTest.php", 4, "LogicException", "Error")
    report = run(folder, CI="true")
    assert (report.status, statuses(report)["CasesTest::testCovers"]) == ("crashed", "passed")
    assert red(report)["CasesTest::testLeaves"] == ("tests/CasesTest.php", 5, None, None)


def test_a_project_of_phps_that_is_not_set_up_cannot_be_run_and_says_how_to(tmp_path: Path) -> None:
    needs("phpunit")
    settings = '<phpunit bootstrap="vendor/autoload.php"/>'
    report = run(lay(tmp_path / "it", {"phpunit.xml": settings, "composer.json": "{}", "tests/CasesTest.php": CASES}))
    assert report.status == "error"
    assert "vendor/autoload.php" in report.notes[0]
    assert "composer install" in report.notes[0]


@pytest.mark.parametrize(
    ("files", "command", "setup"),
    [
        ({"t/deep/a.t": ""}, ["prove", "-l", "-r", "t"], []),
        ({"test/a.t": "use Test::More;\n"}, ["prove", "-l", "-r", "test"], []),
        ({"t/a.t": "", "t/b/t/a.t": "", "A.xs": "", "Makefile.PL": ""}, ["prove", "-l", "-b", "-r", "t"],
         ["perl Makefile.PL", "make"]),
    ],
)  # fmt: skip
def test_tests_of_perls_are_found_where_they_are_and_what_is_in_c_is_built_first(
    files: dict[str, str], command: list[str], setup: list[str], tmp_path: Path
) -> None:
    (target,) = detect(lay(tmp_path, files))
    assert (target.runner, target.command, target.setup) == ("prove", command, setup)


def test_perl_load_errors_are_located_in_the_project_and_no_name_hides_a_test(tmp_path: Path) -> None:
    needs("prove")
    files = {
        "t/a.t": 'use Test::More tests => 2;\nok(1, "a \\r b");\nok(0);\n',
        "t/b.t": "use strict;\nuse POSIX 99;\n",
        "t/c.t": "open(F, '<', $0); <F>;\n\ndie 'no';\n",
    }
    report = run(lay(tmp_path / "it", files))
    assert [(test.status, test.failure and test.failure.line) for test in report.tests] == [
        (TestStatus.PASSED, None),
        (TestStatus.FAILED, 3),
    ]
    assert [(error.file, error.line) for error in report.collection_errors] == [("t/b.t", 2), ("t/c.t", 3)]


LUA = """describe("it", function()
  it("fails", function() assert.are.equal(1, 2) end)
  it("leaves", function() if os.getenv("CI") then os.exit(0) end end)
  describe("around", function()
    before_each(function() error("not ready") end)
    it("is never run", function() end)
  end)
end)
"""


def test_busted_that_dies_keeps_its_results_and_what_goes_wrong_around_tests_has_a_place(tmp_path: Path) -> None:
    needs("busted")
    folder = lay(tmp_path / "it", {".busted": "return {}", "spec/it_spec.lua": LUA})
    report = run(folder)
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("spec/it_spec.lua", 5, "not ready")
    ]
    report = run(folder, CI="true")
    assert (report.status, statuses(report)) == (
        "crashed",
        {"spec/it_spec.lua::it fails": "failed", "spec/it_spec.lua::it leaves": "error"},
    )
    assert red(report)["spec/it_spec.lua::it leaves"] == ("spec/it_spec.lua", 3, None, None)
    typed = TestResult(id="spec/it_spec.lua::it leaves", status=TestStatus.TODO)
    assert statuses(run(folder, only={"busted": [typed]})) == {"spec/it_spec.lua::it leaves": "passed"}


def test_errors_of_the_nim_compiler_are_kept_and_those_of_its_script_dropped(tmp_path: Path) -> None:
    needs("nim")
    package = 'version = "0.1.0"\nauthor = "a"\ndescription = "a"\nlicense = "MIT"\n'
    task = 'task test, "all":\n  exec "nim c -r --hints:off tests/t1.nim"\n'
    report = run(lay(tmp_path / "it", {"it.nimble": package + task, "tests/t1.nim": "import unittest\necho nowhere\n"}))
    assert [(error.file, error.line) for error in report.compile_errors] == [("tests/t1.nim", 2)]
