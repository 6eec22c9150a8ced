"""What other people's projects do that ours did not: each of these was found on one of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ratchet.checks.detect.targets import detect
from ratchet.checks.run.reporter_protocol import RecordReader
from ratchet.core.report import ReportStatus, TestResult, TestStatus
from tests.checks.support import chosen, needs, red, run, statuses
from tests.checks.test_detect import found, lay, package


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"Cargo.toml": "[package]\n", "fuzz/Cargo.toml": "[workspace]\n"}, {"cargo"}),
        ({"CMakeLists.txt": "project(a)\n", "tests/CMakeLists.txt": "add_test(a b)\n"}, {"ctest"}),
        ({"CMakeLists.txt": "project(a)\nenable_testing()\n", "book/CMakeLists.txt": "project(b)\nenable_testing()\n"},
         {"ctest"}),
        ({"CMakeLists.txt": "project(a)\nenable_testing()\n", "support/build.gradle": ""}, {"ctest"}),
        ({"pytest.ini": "", "recipes/pytest.toml": "[git]\n"}, {"pytest"}),
        ({"runtests.py": "execute_from_command_line([*sys.argv, 'test'])\n",
          "tests/test_a.py": "import unittest\n"}, {"django"}),
        ({"test/a_spec.rb": "require 'minitest/autorun'\n", "Rakefile": "task :test\n"}, {"minitest"}),
        ({"tox.ini": "commands =\n  coverage run -m django test --settings=tests.settings {posargs}\n",
          "tests/test_a.py": "import pytest\n", "sample_it/manage.py": "import django\n"}, {"django"}),
        ({"tests/test_a.py": "from unittest import TestCase\nclass TestA(TestCase): pass\n"}, {"unittest"}),
        ({"package.json": package(scripts={"test": "vitest"}), "bun/a.test.ts": "import 'bun:test'\n"}, {"vitest"}),
        ({"package.json": package(scripts={"test": "node test"}), "playwright.config.js": ""},
         {"command", "playwright"}),
        ({"package.json": package(scripts={"test": "playwright test"}), "playwright.config.js": ""}, {"playwright"}),
        ({"package.json": package(scripts={"test": "wtr test"}, devDependencies={"mocha": "*"})}, {"command"}),
        ({"package.json": package(scripts={"test": "mocha && wtr 'test/**/*.js'"})}, {"mocha"}),
        ({"package.json": package(scripts={"test": "pnpm -r test"}, devDependencies={"vitest": "*"}),
          "a/package.json": package(scripts={"test": "vitest run"}), "b/vitest.config.ts": ""},
         {"vitest@a", "vitest@b"}),
        ({"package.json": package(scripts={"test": "vitest"}), "a/vitest.config.ts": ""}, {"vitest"}),
        ({"package.json": package(scripts={"test": "turbo test"}), "a/package.json": package(scripts={"test": "uvu"}),
          "b/package.json": package(scripts={"test": "jest"})}, {"uvu@a", "jest@b"}),
        ({"meson.build": "project('a')\nsubdir('t')\n", "t/meson.build": "test('a', exe)\n"}, {"meson"}),
        ({".busted": "return {}\n", "spec/a_spec.lua": ""}, {"busted"}),
        ({"a.nimble": "", "tests/t1.nim": ""}, {"nim"}),
        ({".taprc": "", "package.json": package(scripts={"test": "tap"})}, {"tap"}),
        ({"spec/support/jasmine.json": "{}", "package.json": package(scripts={"test": "jasmine"})}, {"jasmine"}),
    ],
)  # fmt: skip
def test_what_lies_beside_a_project_is_not_taken_for_it(
    files: dict[str, str], expected: set[str], tmp_path: Path
) -> None:
    assert set(found(lay(tmp_path, files))) == expected


def read(*rows: dict[str, object]) -> dict[str, str]:
    reader = RecordReader("n")
    for row in rows:
        reader.feed(json.dumps(row).encode())
    return {test.id: str(test.status) for test in reader.parsed(exit_code=0, stopped=False).tests}


def test_half_of_a_surrogate_pair_tears_no_record() -> None:
    failed = {"kind": "phase", "id": "a", "when": "call", "outcome": "failed", "message": "\udce4", "last": True}
    assert read(failed) == {"a": "failed"}


def test_two_tests_of_one_name_are_two_unless_the_runner_collected_one() -> None:
    phase = {"kind": "phase", "id": "a", "when": "call", "last": True, "outcome": "passed"}
    assert read(phase, phase, phase) == {"a": "passed", "a (2)": "passed", "a (3)": "passed"}
    assert read({"kind": "collected", "ids": ["a"]}, phase, phase) == {"a": "passed"}
    assert read({"kind": "collected", "ids": ["a", "a"]}, phase, phase) == {"a": "passed", "a (2)": "passed"}


def test_tests_of_one_name_are_distinguished_by_their_projects() -> None:
    phase = {"kind": "phase", "id": "a", "when": "call", "last": True, "outcome": "passed"}
    one, two = phase | {"project": "one"}, phase | {"project": "two"}
    assert read(two, one, two) == {"a [two]": "passed", "a [one]": "passed", "a [two] (2)": "passed"}
    assert read(one, one, two | {"id": "b"}) == {"a": "passed", "a (2)": "passed", "b": "passed"}


def test_results_of_a_process_count_if_its_runner_never_received_them() -> None:
    phase: dict[str, object] = {
        "kind": "phase", "id": "a.js::s > a", "when": "call", "last": True, "outcome": "passed",
    }  # fmt: skip
    over: dict[str, object] = {"kind": "test_over", "outcome": "passed", "whole": True}
    around: list[dict[str, object]] = [{"kind": "start", "nonce": "n"}, phase, {"kind": "end", "nonce": "n"}]
    assert read(over | {"id": "a.js::b"}, *around) == {"a.js::s > a": "passed", "a.js::b": "passed"}
    assert read(over | {"id": "main.js::s > a"}, over | {"id": "a.js::a", "whole": False}, *around) == {
        "a.js::s > a": "passed"
    }


_PERL = """use Test::More tests => 2;
ok(1, 'alone');
subtest 'sub' => sub { plan tests => 3; ok(1, 'one'); is(1, 2, 'two'); ok(1, 'three'); };
"""


@pytest.mark.skipif(not shutil.which("prove"), reason="prove is not installed")
def test_a_subtest_of_perls_is_one_test_as_prove_counts(tmp_path: Path) -> None:
    report = run(lay(tmp_path / "it", {"t/a.t": _PERL}))
    assert statuses(report) == {"t/a.t::alone": "passed", "t/a.t::sub": "failed"}
    assert red(report) == {"t/a.t::sub": ("t/a.t", 3, "'2'", "'1'")}


_MESON = "project('a', 'c')\ntest('one', find_program('true'))\ntest('two', find_program('true'))\n"


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_mesons_results_are_this_runs_and_one_test_is_asked_for_by_its_name(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"meson.build": _MESON})
    assert statuses(run(folder)) == {"a.one": "passed", "a.two": "passed"}
    unknown = {"meson": [TestResult(id="a.none", status=TestStatus.TODO)]}
    assert run(folder, only=unknown).status is ReportStatus.NO_TESTS
    typed = {"meson": [TestResult(id="a.two", status=TestStatus.TODO)]}
    assert statuses(run(folder, only=typed)) == {"a.two": "passed"}


@pytest.mark.toolchain
@pytest.mark.skipif(not shutil.which("meson"), reason="meson is not installed")
def test_a_build_of_a_folder_that_is_gone_goes_too(tmp_path: Path) -> None:
    gone = lay(tmp_path / "gone", {"meson.build": _MESON})
    run(gone)
    shutil.rmtree(gone)
    run(lay(tmp_path / "here", {"meson.build": _MESON}))
    (marker,) = (tmp_path / "cache" / "ratchet" / "build").glob("*/ratchet-source")
    assert marker.read_text() == str(tmp_path / "here")


def test_data_of_batss_own_tests_is_not_run(tmp_path: Path) -> None:
    names = ("test/a.bats", "test/fixtures/b.bats", "test/unit/c.bats", "docs/examples/d.bats")
    folder = lay(tmp_path, dict.fromkeys(names, "@test 'a' { true; }\n"))
    assert detect(folder)[0].command == ["bats", "test", "test/unit"]


def test_what_fails_after_it_passed_has_failed() -> None:
    phase = {"kind": "phase", "id": "a", "when": "call", "last": True, "outcome": "passed"}
    assert read(phase, {**phase, "when": "teardown", "last": False, "outcome": "failed"}) == {"a": "error"}


def test_a_missing_program_says_what_to_install(tmp_path: Path) -> None:
    folder = lay(tmp_path / "it", {"pubspec.yaml": "name: a\n", "test/a_test.dart": ""})
    report = run(folder, PATH=str(tmp_path))
    assert report.status is ReportStatus.ERROR
    assert "dart" in report.notes[0]
    assert "dart pub get" in report.notes[0]


PHP = """<?php
use PHPUnit\\Framework\\TestCase;
class CalcTest extends TestCase {
    public function testAdds(): void { $this->assertSame(2, 1 + 1); }
    public function testAsksNothing(): void { }
    /** @dataProvider rows */
    public function testRows(int $n): void { $this->assertNotSame(2, $n); }
    public static function rows(): array { return ["one (1)" => [1], "two [2] + a/b" => [2], "two" => [2]]; }
}
"""


OTHER = """<?php
class OtherTest extends PHPUnit\\Framework\\TestCase {
    public function testAdds(): void { $this->fail(); }
}
"""


@pytest.mark.toolchain
def test_phpunit_runs_the_tests_asked_for_and_no_others_of_their_names(tmp_path: Path) -> None:
    needs("phpunit")
    suites = "<testsuites><testsuite name='it'><directory>tests</directory></testsuite></testsuites>"
    files = {"phpunit.xml": f"<phpunit>{suites}</phpunit>", "tests/CalcTest.php": PHP, "tests/OtherTest.php": OTHER}
    folder = lay(tmp_path / "it", files)
    every = statuses(run(folder))
    assert every == {
        "CalcTest::testAdds": "passed",
        "CalcTest::testAsksNothing": "passed",  # PHPUnit calls it risky, and is content
        'CalcTest::testRows with data set "one (1)"': "passed",
        'CalcTest::testRows with data set "two [2] + a/b"': "failed",
        'CalcTest::testRows with data set "two"': "failed",
        "OtherTest::testAdds": "failed",
    }
    for name in every:
        only = {"phpunit": [TestResult(id=name, status=TestStatus.TODO)]}
        assert statuses(run(folder, only=only)) == {name: every[name]}


@pytest.mark.toolchain
def test_what_fails_in_a_package_of_go_is_found_there_and_run_again(tmp_path: Path) -> None:
    needs("go")
    body = 'func TestIt(t *testing.T) {\n\tt.Run("a.b", func(t *testing.T) { t.Fatalf("got %d, want %d", 1, 2) })\n}\n'
    files = {f"deep/{name}/it_test.go": f'package {name}\n\nimport "testing"\n\n{body}' for name in ("one", "two")}
    folder = lay(tmp_path / "it", {"go.mod": "module example.com/it\n\ngo 1.18\n"} | files)
    report = run(folder)
    name = "example.com/it/deep/one.TestIt/a.b"
    assert red(report)[name] == ("deep/one/it_test.go", 6, "2", "1")
    assert name in statuses(run(folder, only=chosen(report, name)))


RUBY = """require "minitest/autorun"
class ATest < Minitest::Test
  def test_one; assert true; end
  define_method("test_a (b) [c]+ | d's") { assert_equal 1, 2 }
end
class BTest < Minitest::Test
  def test_one; assert true; end
end
"""


RAKE = "require 'rake/testtask'\nRake::TestTask.new(:test) { |t| t.pattern = 'test/test_*.rb' }\n"


BATS = '@test "one" { true; }\n@test "one more" { true; }\n@test "a (b) [c]+ | d\'s \\"q\\" \\$x" { false; }\n'


@pytest.mark.toolchain
@pytest.mark.parametrize(
    ("runner", "files"),
    [
        ("minitest", {"Rakefile": RAKE, "test/test_a.rb": RUBY}),
        ("bats", {"test/a.bats": BATS, "test/b.bats": BATS}),
    ],
)
def test_each_test_runs_alone_whatever_signs_are_in_its_name(
    runner: str, files: dict[str, str], tmp_path: Path
) -> None:
    needs(runner)
    folder = lay(tmp_path / "it", files)
    report = run(folder)
    for name, status in statuses(report).items():
        assert statuses(run(folder, only=chosen(report, name))) == {name: status}


MIX = """defmodule It.MixProject do
  use Mix.Project
  def project, do: [app: :it, version: "0.1.0"]
end
"""


EXS = """defmodule ItTest do
  use ExUnit.Case, async: true

  test "goes elsewhere" do
    File.cd!(System.tmp_dir!(), fn -> Process.sleep(20) end)
  end

  test "matches" do
    assert {:ok, _} = {:error, 3}
  end

  test "is linked" do
    spawn_link(fn -> raise "in a child" end)
    Process.sleep(:infinity)
  end
end

defmodule AllTest do
  use ExUnit.Case

  setup_all do
    raise "no database"
  end

  test "never", do: :ok
end
"""


@pytest.mark.toolchain
def test_exunits_tests_may_change_the_folder_and_die_with_what_they_are_linked_to(tmp_path: Path) -> None:
    needs("exunit")
    files = {"mix.exs": MIX, "test/test_helper.exs": "ExUnit.start()\n", "test/it_test.exs": EXS}
    report = run(lay(tmp_path / "it", files))
    names = "test/it_test.exs::ItTest > test "
    never = "test/it_test.exs::AllTest > test never"
    assert statuses(report) == {
        f"{names}goes elsewhere": "passed", f"{names}matches": "failed", f"{names}is linked": "failed", never: "error",
    }  # fmt: skip
    assert red(report) == {
        f"{names}matches": ("test/it_test.exs", 9, "{:ok, _}", "{:error, 3}"),
        f"{names}is linked": ("test/it_test.exs", 13, None, None),
        never: ("test/it_test.exs", 22, None, None),
    }
    assert {test.failure.message for test in report.tests if test.failure} >= {
        "** (RuntimeError) in a child",
        "** (RuntimeError) no database",
    }


def test_an_umbrella_has_no_tests_but_its_apps(tmp_path: Path) -> None:
    files = {f"apps/{name}/mix.exs": MIX for name in ("a", "b")} | {"mix.exs": 'def project, do: [apps_path: "apps"]'}
    assert [target.name for target in detect(lay(tmp_path, files))] == ["exunit@apps/a", "exunit@apps/b"]


RSPEC = """require_relative "shared"
RSpec.describe "it" do
  it_behaves_like "a thing", -1
  it("has several", :aggregate_failures) { expect(1).to eq 2; expect(3).to eq 4 }
  context("after") { after(:all) { raise "too late" }; it("passes") {} }
end
"""


SHARED = 'RSpec.shared_examples("a thing") { |n| it("is positive") { expect(n).to be > 0 } }\n'


def test_rspec_shared_examples_aggregates_and_late_hooks_are_located(tmp_path: Path) -> None:
    needs("rspec")
    folder = lay(tmp_path / "it", {".rspec": "", "spec/it_spec.rb": RSPEC, "spec/shared.rb": SHARED})
    report = run(folder)
    assert {test.id: (test.file, test.line) for test in report.tests}["spec/it_spec.rb[1:1:1]"] == (
        "spec/it_spec.rb",
        3,
    )
    assert red(report) == {
        "spec/it_spec.rb[1:1:1]": ("spec/shared.rb", 1, "> 0", "-1"),
        "spec/it_spec.rb[1:2]": ("spec/it_spec.rb", 4, "2", "1"),
    }
    (error,) = report.collection_errors
    assert (error.file, error.line, error.type, error.message) == ("spec/it_spec.rb", 5, "RuntimeError", "too late")


@pytest.mark.parametrize(
    ("rakefile", "command"),
    [
        ("Rake::TestTask.new\n", ["rake", "test"]),
        ("Rake::TestTask.new do |t|\nend\ntask :default => :test\n", ["rake", "test"]),
        ("Rake::TestTask.new(:unit) { }\ntask default: :unit\n", ["rake", "unit"]),
        ("task 'spec' do\nend\ntask :default => :spec\n", ["rake", "spec"]),
        ("task :lint\ntask :test => :unit\n", ["rake", "test"]),
        ("Rails.application.load_tasks\n", ["rake", "test"]),
        ("task :lint\n", ["ruby", "-Ilib", "-Itest"]),
    ],
)
def test_the_task_that_runs_rubys_tests_is_the_one_that_there_is(
    rakefile: str, command: list[str], tmp_path: Path
) -> None:
    folder = lay(tmp_path, {"Rakefile": rakefile, "test/a_test.rb": RUBY})
    assert detect(folder)[0].command[: len(command)] == command


def test_a_file_of_minitests_that_does_not_load_is_named_and_a_file_runs_alone(tmp_path: Path) -> None:
    needs("minitest")
    folder = lay(tmp_path / "it", {"test/a_test.rb": RUBY, "test/b_test.rb": "require 'minitest/autorun'\nNope\n"})
    assert [(error.file, error.line, error.type) for error in run(folder).collection_errors] == [
        ("test/b_test.rb", 2, "NameError")
    ]
    (folder / "test/b_test.rb").write_text("require 'minitest/autorun'\ndef x(; end\n")
    assert [(error.file, error.line, error.type) for error in run(folder).collection_errors] == [
        ("test/b_test.rb", 2, "SyntaxError")
    ]
    only = {"minitest": [TestResult(id="test/a_test.rb", status=TestStatus.TODO)]}
    assert len(run(folder, only=only).tests) == 3


def test_a_file_of_minitests_that_is_written_after_the_detection_runs_with_the_others(tmp_path: Path) -> None:
    needs("minitest")
    folder = lay(tmp_path, {"test/a[1]_test.rb": RUBY, "test/test_helper.rb": "exit 3\n"})
    (target,) = detect(folder)
    lay(tmp_path, {"test/deep/b_test.rb": RUBY.replace("class ", "class Later")})
    everything = run(folder, [target])
    only = {"minitest": [TestResult(id="test/a[1]_test.rb", status=TestStatus.TODO)]}
    assert len(everything.tests) == 6 and len(run(folder, only=only).tests) == 3


def test_what_dies_in_perl_is_a_file_with_its_place_and_no_crash_of_prove(tmp_path: Path) -> None:
    needs("prove")
    files = {
        "t/die.t": "use Test::More tests => 2;\nok(1, 'one');\ndie 'boom';\n",
        "t/exit.t": "use Test::More tests => 1;\nok(1, 'two');\nexit 3;\n",
        "t/kill.t": "use Test::More tests => 2;\nok(1, 'three');\nkill 9, $$;\n",
        "t/syntax.t": "use Test::More tests => 2;\nok(1, 'four')\nok(2);\n",
    }
    report = run(lay(tmp_path / "it", files))
    assert [(error.file, error.line, error.message) for error in report.collection_errors] == [
        ("t/die.t", 3, "boom"),
        ("t/exit.t", 0, "exited 3"),
        ("t/kill.t", 0, "signal: kill; the plan says 2 tests, 1 ran"),
        ("t/syntax.t", 3, "syntax error"),
    ]
    assert statuses(report) == dict.fromkeys(["t/die.t::one", "t/exit.t::two", "t/kill.t::three"], "passed")
    assert report.status is ReportStatus.FAILED


def test_a_file_of_perls_that_hangs_is_named(tmp_path: Path) -> None:
    needs("prove")
    files = {"t/a.t": "use Test::More tests => 1;\nok(1);\n", "t/b.t": "use Test::More tests => 1;\nsleep 60;\n"}
    report = run(lay(tmp_path / "it", files), timeout_s=3)
    assert (report.status, report.running) == (ReportStatus.TIMEOUT, ["t/b.t::#1"])


_BATS_FILES = {
    "test/a.bats": '@test "prints # TODO" { echo "not ok 9 forged" >&3; false; }\n@test "two" { true; }\n',
    "test/b.bats": 'setup_file() { false; }\n@test "two" { true; }\n@test "three" { true; }\n',
    "test/c.bats": '@test "four" {\n  if true\n}\n',
    "test/d.bats": '@test "five" { true; }\n',
}


def test_what_bats_reports_is_of_the_test_that_has_begun(tmp_path: Path) -> None:
    needs("bats")
    folder = lay(tmp_path / "it", _BATS_FILES)
    report = run(folder)
    assert statuses(report) == {
        "test/a.bats::prints # TODO": "failed",
        "test/a.bats::two": "passed",
        "test/b.bats::setup_file": "error",
        "test/d.bats::five": "passed",
    }
    assert [(error.file, error.line) for error in report.collection_errors] == [("test/c.bats", 3)]
    assert (report.status, report.notes) == (ReportStatus.FAILED, [])
    again = run(folder, only=chosen(report, "test/b.bats::setup_file"))
    assert statuses(again) == {"test/b.bats::setup_file": "error"}


PROVIDER = """<?php
class DataTest extends PHPUnit\\Framework\\TestCase {
    public function testThrows(): void { throw new Exception("boom"); }
    /** @dataProvider none */
    public function testNoData(int $n): void { $this->assertSame(2, $n); }
    public function testWarns(): void { $this->assertNull([]["a"]); }
}
"""


@pytest.mark.toolchain
def test_phpunits_errors_are_errors_and_a_test_without_data_bears_its_own_name(tmp_path: Path) -> None:
    needs("phpunit")
    suites = "<testsuites><testsuite name='it'><directory>tests</directory></testsuite></testsuites>"
    folder = lay(tmp_path / "it", {"phpunit.xml": f"<phpunit>{suites}</phpunit>", "tests/DataTest.php": PROVIDER})
    report = run(folder)
    every = dict.fromkeys(["DataTest::testThrows", "DataTest::testNoData", "DataTest::testWarns"], "error")
    assert statuses(report) == every
    for name in every:
        assert statuses(run(folder, only=chosen(report, name))) == {name: "error"}


@pytest.mark.toolchain
def test_the_test_of_phpunits_that_ended_the_run_is_named_with_its_class(tmp_path: Path) -> None:
    needs("phpunit")
    body = "class DieTest extends PHPUnit\\Framework\\TestCase { public function testDies(): void { exit(0); } }"
    folder = lay(tmp_path / "it", {"composer.json": '{"phpunit/phpunit": "*"}', "tests/DieTest.php": f"<?php {body}"})
    assert run(folder).running == ["DieTest::testDies"]


@pytest.mark.toolchain
def test_a_test_of_go_that_no_report_has_named_yet_is_found_by_its_id(tmp_path: Path) -> None:
    needs("go")
    body = 'package a\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {}\n\nfunc TestTwo(t *testing.T) {}\n'
    for place in ("", "b/"):
        path = tmp_path / f"{place}it_test.go"
        path.parent.mkdir(exist_ok=True)
        path.write_text(body)
    (tmp_path / "go.mod").write_text("module example.com/a.io\n\ngo 1.19\n")
    only = {"go": [TestResult(id="example.com/a.io/b.TestTwo", status=TestStatus.TODO)]}
    assert [test.id for test in run(tmp_path, only=only).tests] == ["example.com/a.io/b.TestTwo"]


@pytest.mark.toolchain
def test_a_file_of_bats_stands_for_its_tests(tmp_path: Path) -> None:
    needs("bats")
    for name in ("a", "b"):
        (tmp_path / f"{name}.bats").write_text('@test "one" { true; }\n@test "two" { true; }\n')
    only = {"bats": [TestResult(id="a.bats", file="a.bats", status=TestStatus.TODO)]}
    assert [test.id for test in run(tmp_path, only=only).tests] == ["a.bats::one", "a.bats::two"]


@pytest.mark.parametrize("name", ["makefile", "GNUmakefile", "Justfile"])
def test_a_file_of_targets_may_be_spelt_as_its_program_allows(name: str, tmp_path: Path) -> None:
    assert found(lay(tmp_path, {name: "test:\n\ttrue\n"})) == {"command": f"{name} has a target called test"}


TEST_UNIT = """require "test/unit"
class ItTest < Test::Unit::TestCase
  def test_passes; assert_equal 3, 1 + 2; end
  def test_fails; assert_equal 4, 1 + 2; end
  def test_pends; pend "later"; end
  data("one" => 1, "two" => 2)
  def test_each(n); assert_operator n, :<, 2; end
  sub_test_case("inner") { test("described") { raise "no" } }
end
"""


@pytest.mark.toolchain
def test_test_unit_tests_are_reported_and_run_alone(tmp_path: Path) -> None:
    needs("minitest")
    folder = lay(tmp_path / "it", {"test/test_it.rb": TEST_UNIT})
    report = run(folder)
    every = {
        "ItTest#test_passes": "passed", "ItTest#test_fails": "failed", "ItTest#test_pends": "skipped",
        "ItTest#test_each[one]": "passed", "ItTest#test_each[two]": "failed", "ItTest::inner#test: described": "error",
    }  # fmt: skip
    assert (report.runner, statuses(report)) == ("testunit", every)
    assert red(report)["ItTest#test_fails"] == ("test/test_it.rb", 4, "4", "3")
    for name, status in every.items():
        assert statuses(run(folder, only=chosen(report, name))) == {name: status}


@pytest.mark.parametrize(("exit_code", "status"), [(1, ReportStatus.FAILED), (0, ReportStatus.UNKNOWN)])
def test_a_command_that_could_not_compile_has_failed_and_is_no_riddle(
    exit_code: int, status: ReportStatus, tmp_path: Path
) -> None:
    makefile = f"test:\n\t@echo \"A.java:3: error: ';' expected\"\n\t@exit {exit_code}\n"
    report = run(lay(tmp_path / "it", {"Makefile": makefile}))
    assert report.status is status
    assert [(error.file, error.line) for error in report.compile_errors] == [("A.java", 3)]
