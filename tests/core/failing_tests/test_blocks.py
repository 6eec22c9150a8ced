"""Failing bodies in Ruby, Elixir, Lua and R: blocks found by their first line, suites by indentation."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.failing_tests import FailingTests, with_failing_tests

MARKS = {".rb": "; raise Exception, 'expected", ".exs": " if length([", ".lua": " if #'", ".R": " if (length("}


def rewritten(path: str, text: str) -> tuple[str, FailingTests]:
    found = with_failing_tests(path, text)
    assert found, f"left alone: {text}"
    return found


@pytest.mark.parametrize(
    ("path", "text", "suite", "name"),
    [
        ("a.rb", "class ATest < Minitest::Test\n  def test_adds|\n    x\n  end\nend\n", "ATest", "test_adds"),
        ("a.rb", "class ATest\n  def test_adds()| # it\n  end\nend\n", "ATest", "test_adds"),
        ("a.rb", "  def test_adds|\n  ensure\n    x\n  end\n", "ATest", "test_adds[one]"),
        ("a.rb", "test 'a sum adds' do|\nend\n", "ATest", "test_a_sum_adds"),
        ("a.rb", "test 'adds' do|\nend\n", "ATest", "test: adds"),
        ("a.rb", "context 'a sum' do\n  should \"add\" do|\n  end\nend\n", "ATest", "test: a sum should add. "),
        ("a.rb", "it 'adds' do|\nend\n", "a sum", "test_0001_adds"),
        ("a.rb", "describe Sum do\n  it('adds') {| x }\nend\n", "Sum", "adds"),
        ("a.rb", "RSpec.describe 'Sum' do\n  it 'adds', :slow,\n     on: 1 do |x|| y\n  end\nend\n", "Sum", "adds"),
        ("a.rb", 'describe \'Sum\' do\n  it "adds #{a("b")} to 2" do|\n  end\nend\n', "Sum", "adds 1 to 2"),
        ("a.rb", "describe 'Sum' do\n  it 'doesn\\'t' do|\n  end\nend\n", "Sum", "doesn't"),
        (
            "a.rb",
            "x = <<~A + <<-'B'\n  it 'x' do\n  A\nB\ndescribe 'Sum' do\n  it 'adds' do|\n  end\nend\n",
            "Sum",
            "adds",
        ),
        (
            "a.rb",
            "=begin\n'\n=end\nx = /\"/ if a / b\ndescribe 'Sum' do\n  it 'adds' do|\n  end\nend\n__END__\n'",
            "Sum",
            "adds",
        ),
        ("a.rb", "x = %w[' \"] + [?', $'] # it's\ndescribe 'Sum' do\n  it 'adds' do|\n  end\nend\n", "Sum", "adds"),
        ("a.exs", 'test "adds" do|\nend\n', "ATest", "test adds"),
        (
            "a.exs",
            'describe "a sum" do\n  test "adds", %{a: a} do|\n    x\n  after\n    y\n  end\nend\n',
            "A",
            "test a sum adds",
        ),
        ("a.exs", 'property "adds #{@x}" do|\nend\n', "ATest", "property adds 1"),
        ("a.exs", 'x = """\n\'\n"""\ny = ~s(") <> ?" # "\ntest "adds" do|\nend\n', "ATest", "test adds"),
        ("a.R", 'x <- r"-(")-" # \'\ntest_that("adds", {|\n  x\n})\n', "", "adds"),
        ("a.R", "describe('a sum', {\n  it('adds', {| x })\n})\n", "", "a sum: adds"),
        ("a.lua", "describe('a sum', function()\n  it('adds', function()|\n  end)\nend)\n", "", "a sum adds"),
        ("a.lua", "x = [[ ' ]] -- '\n--[==[\n' ]==]\nit('adds', function()| x() end)\n", "Run 1 of 1", "adds"),
        ("a.lua", 'it("adds", async(function(done)|\n  return x\nend))\n', "", "adds"),
    ],
)
def test_a_failure_is_put_first_into_the_body(path: str, text: str, suite: str, name: str) -> None:
    before, _, after = text.replace("||", "|\0").partition("|\0" if "||" in text else "|")
    before += "|" if "||" in text else ""
    mark = MARKS[path[1:]]
    changed, tests = rewritten(path, before + after)
    assert changed.startswith(before + mark) and changed.endswith(after) and changed.count(mark) == 1
    assert tests.must_fail([suite] if suite else [], name)
    assert not tests.must_fail([suite] if suite else [], f"not {name}")


def test_in_ruby_a_test_is_known_by_its_suites() -> None:
    _, tests = rewritten(
        "a_spec.rb",
        "describe 'a' do\n  context \"b #{1}\" do\n    it 'adds' do\n    end\n  end\n"
        "  [1].each do\n      it 'loops' do\n      end\n  end\nend\nit 'stands alone' do\nend\n",
    )
    assert tests.must_fail(["a", "b 1"], "a b 1 adds") and tests.must_fail(["a"], "a loops")
    assert tests.must_fail([], "stands alone")
    assert not tests.must_fail(["a"], "a adds") and not tests.must_fail(["a", "b 1"], "a b 1 loops")


def test_shared_examples_of_rspec_fail_but_prove_nothing() -> None:
    changed, tests = rewritten("a_spec.rb", "shared_examples 'x' do\n  it 'adds' do\n  end\nend\nit 'other' do\nend\n")
    assert changed.count(MARKS[".rb"]) == 2 and tests.must_fail([], "other")
    assert not tests.must_fail([], "adds") and not tests.must_fail(["x"], "adds")


@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("a.rb", "def test_adds\n  x\nrescue Exception\nend\n"),
        ("a.rb", "def test_adds\nensure\n  return\nend\n"),
        ("a.rb", "  def test_adds\n  x\nend\n"),
        ("a.rb", "def it(name)\nend\nit 'adds' do\nend\n"),
        ("a.exs", 'test "adds" do\n  x\nrescue\n  _ -> 1\nend\n'),
        ("a.exs", 'test "adds" do\n  x\ncatch\n  1 -> 1\nend\n'),
        ("a.exs", 'defmacro test(name, x) do\nend\ntest "adds" do\nend\n'),
        ("a.lua", "local it = wrap(it)\nit('adds', function()\nend)\n"),
        ("a.lua", "local function it(x)\nend\nit('adds', function()\nend)\n"),
    ],
)
def test_a_test_that_may_pass_all_the_same_keeps_its_body_and_proves_nothing(path: str, other: str) -> None:
    plain = {
        "a.rb": "def test_other\nend\n",
        "a.exs": 'property "other" do\nend\n',
        "a.lua": "test('x', function()\nend)\n",
    }
    changed, tests = rewritten(path, other + plain[path])
    assert changed.startswith(other) and changed.count(MARKS[path[1:]]) == 1
    for name in ("test_adds", "adds", "test adds", "test_0001_adds"):
        assert not tests.must_fail(["A"], name) and not tests.must_fail([], name)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.rb", "it name do\nend\n"),
        ("a.rb", "it 'a' + 'b' do\nend\n"),
        ("a.rb", 'it "#{x}" do\nend\n'),
        ("a.rb", "it 'adds'\n"),
        ("a.rb", "x.it 'adds' do\nend\n"),
        ("a.rb", "# it 'adds' do\n"),
        ("a.rb", "xit 'adds' do\nend\n"),
        ("a.rb", "x = <<A\nit 'adds' do\nend\nA\n"),
        ("a.rb", "x = %(\nit 'adds' do\nend\n)\n"),
        ("a.rb", "__END__\nit 'adds' do\nend\n"),
        ("a.rb", "it 'adds' do\nend\nx = \"\n"),
        ("a.rb", "it 'adds' do\nend\nx = <<~A\n"),
        ("a.rb", "it 'adds' do\nend\n=begin\n"),
        ("a.exs", 'test "adds"\n'),
        ("a.exs", 'test "adds", do: x\n'),
        ("a.exs", 'x = """\ntest "adds" do\nend\n"""\n'),
        ("a.exs", 'test "adds" do\nend\nx = "\n'),
        ("a.ex", 'test "adds" do\nend\n'),
        ("a.R", "test_that('adds', x)\n"),
        ("a.R", "it <- function() 1\nit('adds', {\n})\n"),
        ("a.R", "it('adds', {\n})\nx <- '\n"),
        ("a.R", "it('adds', {\n})\nx <- r'(\n"),
        ("a.lua", "it('adds')\n"),
        ("a.lua", "it('a' .. x, function()\nend)\n"),
        ("a.lua", "x = [[\nit('adds', function()\nend)\n]]\n"),
        ("a.lua", "it('adds', function()\nend)\nx = [[\n"),
        ("a.lua", "it('adds', function()\nend)\nx = '\n"),
    ],
)
def test_what_is_unclear_or_only_looks_like_a_test_is_left_alone(path: str, text: str) -> None:
    assert with_failing_tests(path, text) is None


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("a.rb", "it 'a{0}' do\nend\n"),
        ("a.rb", "it 'same' do\nend\n"),
        ("a.rb", 'it "adds {0}#{1}" do\nend\n'),
        ("a.rb", "describe '{0}' do\n  it 'same' do\n  end\nend\n"),
        ("a.exs", 'test "a{0}" do\nend\n'),
        ("a.js", "it('a{0}', () => {});\n"),
        ("a.js", "describe('{0}', () => { it('same', () => {}); });\n"),
    ],
)
def test_a_test_is_found_at_once_among_thousands(path: str, test: str) -> None:
    _, tests = rewritten(path, "".join(test.replace("{0}", str(n)) for n in range(4_000)))
    start = process_time()
    for n in range(2_000):
        tests.must_fail(["x"], f"adds {n}")
        tests.must_fail(["x"], "x same")
    assert process_time() - start < 5


PIECES = [
    "it 'a' do",
    "def test_a",
    "describe 'x' do",
    'test "a" do',
    "it('a', function()",
    "end",
    "end)",
    "}",
    "\n",
    "  ",
    "'",
    '"',
    "`",
    "#{",
    "#",
    "<<~A",
    "A\n",
    "%w[",
    "]",
    "/",
    "?",
    "\\",
    '"""',
    "~s(",
    ")",
    "[[",
    "]]",
    "--",
    "=begin\n",
    "\n=end",
    "x",
    ":",
    "rescue",
    "ensure",
    "$",
    "[=[",
    "it ,\n",
]


@pytest.mark.parametrize("path", ["a.rb", "a.exs", "a.lua", "a.R"])
@pytest.mark.parametrize("piece", [*PIECES, "\nit 'a' do", "\nit '#{", "\n<<A", '"#{', "\n it(''", "\nit('#{#{#{"])
def test_text_made_to_stall_its_reader_takes_time_by_length_only(path: str, piece: str) -> None:
    start = process_time()
    with_failing_tests(path, piece * (250_000 // len(piece)))
    with_failing_tests(path, "it('" + piece * (250_000 // len(piece)) + "', function() end)")
    assert process_time() - start < 20


@pytest.mark.parametrize("path", ["a.rb", "a.exs", "a.lua", "a.R"])
@given(text=st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_rewritten_by_additions_only_or_left_alone(path: str, text: str) -> None:
    found = with_failing_tests(path, text)
    left = iter(found[0] if found else text)
    assert all(letter in left for letter in text)
