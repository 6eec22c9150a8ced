"""What the text of a failure gives away."""

# One text, one line.
# ruff: noqa: E501

from __future__ import annotations

import io

import pytest

from ratchet.checks.formats import compiler, recover, yamlish
from ratchet.checks.formats.recover import stacks, values
from ratchet.checks.formats.recover.prefilter import rarest
from ratchet.checks.formats.text import HeadAndTail, Tail, clip, lines, strip_control_characters
from ratchet.core.report import expected_text

VALUES = [
    ("junit 4", "expected:<4> but was:<5>", "4", "5"),
    ("junit 5", "sums ==> expected: <4> but was: <5>", "4", "5"),
    ("junit 5 in lines", "expected: <4\n6> but was: <4\n5>\n\tat x.Y.z(Y.java:3)", "4\n6", "4\n5"),
    ("testng", "expected [4] but found [5]", "4", "5"),
    ("kotlin", "Expected <4>, actual <5>.", "4", "5"),
    ("hamcrest", "\nExpected: is <4>\n     but: was <5>", "4", "5"),
    ("hamcrest old", "\nExpected: is <4>\n     got: <5>\n", "4", "5"),
    ("assertj", "\nexpected: 4\n but was: 5", "4", "5"),
    ("assertj old", "\nExpecting:\n <5>\nto be equal to:\n <4>\nbut was not.", "4", "5"),
    ("scalatest", "5 did not equal 4 (CalcSpec.scala:9)", "4", "5"),
    ("nunit", "  Expected: 4\n  But was:  5\n", "4", "5"),
    ("xunit", "Assert.Equal() Failure\nExpected: 4\nActual:   5", "4", "5"),
    ("mstest", "Assert.AreEqual failed. Expected:<4>. Actual:<5>. ", "4", "5"),
    ("pytest", "assert 5 == 4\n +  where 5 = add(2, 2)", "4", "5"),
    ("unittest", "AssertionError: 5 != 4", "4", "5"),
    ("jest", "expect(received).toBe(expected)\n\nExpected: 4\nReceived: 5\n", "4", "5"),
    (
        "bun",
        'expect(received).toEqual(expected)\n\n  {\n-   "a": 2,\n+   "a": 1,\n  }\n\n'
        "- Expected  - 1\n+ Received  + 1\n\n      at a.test.ts:13:42\n",
        '{\n  "a": 2,\n}',
        '{\n  "a": 1,\n}',
    ),
    (
        "bun more",
        'expect(received).toEqual(expected)\n\n  {\n    "a": 1,\n+   "b": 2,\n  }\n\n'
        "- Expected  - 0\n+ Received  + 1\n",
        '{\n  "a": 1,\n}',
        '{\n  "a": 1,\n  "b": 2,\n}',
    ),
    (
        "bun contains",
        "expect(received).toContain(expected)\n\nExpected to contain: 3\nReceived: [ 1, 2 ]\n",
        "3",
        "[ 1, 2 ]",
    ),
    ("jest contains", "Expected value: 3\nReceived array: [1, 2]\n", "3", "[1, 2]"),
    ("chai", "AssertionError: expected 5 to equal 4", "4", "5"),
    ("node", "Expected values to be strictly equal:\n\n5 !== 4\n", "4", "5"),
    ("vitest", "- Expected\n+ Received\n\n- 4\n+ 5\n", "4", "5"),
    ("phpunit", "Failed asserting that 5 matches expected 4.", "4", "5"),
    (
        "phpunit diff",
        "Failed asserting that two strings are equal.\n--- Expected\n+++ Actual\n@@ @@\n-'a'\n+'b'\n",
        "'a'",
        "'b'",
    ),
    ("rspec", "\n       expected: 4\n            got: 5\n\n       (compared using ==)", "4", "5"),
    ("minitest", "Expected: 4\n  Actual: 5", "4", "5"),
    ("testify", "Not equal: \n\t\texpected: 4\n\t\tactual  : 5", "4", "5"),
    ("check", "a.c:3:F:C:it:0: Assertion 'f() == 4' failed: f() == 5, 4 == 4", "4", "5"),
    ("cmocka", "[  ERROR   ] --- 0x5 != 0x4\n[   LINE   ] --- /w/a.c:7: error: Failure!", "0x4", "0x5"),
    ("go want", "Add(2, 2) = 5, want 4", "4", "5"),
    ("go got", "got 5, want 4", "4", "5"),
    ("go want first", "want 4, got 5", "4", "5"),
    ("plain", "expected 4 but got 5", "4", "5"),
    ("rust", "assertion `left == right` failed\n  left: 5\n right: 4", "4", "5"),
    ("rust old", "assertion failed: `(left == right)`\n  left: `5`,\n right: `4`", "4", "5"),
    ("gtest", "Expected equality of these values:\n  add(2, 2)\n    Which is: 5\n  4", "4", "5"),
    ("gtest old order", "Expected equality of these values:\n  4\n  add(2, 2)\n    Which is: 5", "4", "5"),
    ("gtest compare", "Expected: (add(2, 2)) < (4), actual: 5 vs 4", "4", "5"),
    ("catch2", "CHECK( add(2, 2) == 4 )\nwith expansion:\n  5 == 4", "4", "5"),
    ("exunit", "code:  assert add(2, 2) == 4\nleft:  5\nright: 4\n", "4", "5"),
    ("dart", "Expected: <4>\n  Actual: <5>\n", "4", "5"),
    ("xctest", 'XCTAssertEqual failed: ("5") is not equal to ("4")', "4", "5"),
    ("zig", "expected 4, found 5", "4", "5"),
    ("perl", "Failed test\n         got: '5'\n    expected: '4'", "'4'", "'5'"),
    ("perl", "Failed test\n         got: 'a\nb'\n    expected: 'a\nc'", "'a\nc'", "'a\nb'"),
    ("perl", "Failed test 'x'\n  at t/a.t line 7.\n      'abc'\n    doesn't match '(?^:x+)'", "(?^:x+)", "'abc'"),
    ("perl", "Failed test 'x'\n  at t/a.t line 9.\n    '1'\n        >\n    '2'", "'2'", "'1'"),
    ("test2", "| GOT | OP | CHECK |\n+-----+----+-------+\n| x   | eq | y     |\n+-----+----+-------+", "y", "x"),
    ("test2", "| PATH | LNs | GOT | OP | CHECK | LNs |\n+-+\n| [1] | 2 | a | eq | b | 3 |", "b", "a"),
    ("go", 'want: "x y", have: "z"', '"x y"', '"z"'),
    ("go", "have: 1, want: 2", "2", "1"),
    (
        "phpunit",
        'Failed asserting that exception of type "E" matches expected exception "L". Message was: "m" at',
        "L",
        "E",
    ),
    ("boost", "check add(2, 2) == 4 failed [5 != 4]", "4", "5"),
    ("qt", "Compared values are not the same\n   Actual   (add(2, 2)): 5\n   Expected (4)        : 4", "4", "5"),
    ("cppunit", "equality assertion failed\n- Expected: 4\n- Actual  : 5", "4", "5"),
    ("gomega", "Expected\n    <int>: 5\nto equal\n    <int>: 4", "4", "5"),
    ("mocha", "AssertionError: no\n\n      + expected - actual\n\n      -5\n      +4\n", "4", "5"),
    ("unity", "Expected 4 Was 5", "4", "5"),
    ("assertj size", "Expected size:<4> but was:<5> in:\n<[1]>", "4", "5"),
    ("mbunit", "Equal assertion failed: [[4]]!=[[5]]", "4", "5"),
    ("rspec truth", "expected true\n     got false", "true", "false"),
    (
        "rspec mock",
        "expected: 4 times with any arguments\n    received: 5 times",
        "4 times with any arguments",
        "5 times",
    ),
    ("node negative", "Expected values to be strictly equal:\n\n-5 !== 4\n", "4", "-5"),
    ("xctest twice escaped", "XCTAssertEqual failed: (&quot;5&quot;) is not equal to (&quot;4&quot;)", "4", "5"),
    ("jest lines", 'Expected pattern: /4/\nReceived string:  "a\n b\n"\n\n    at x', "/4/", '"a\n b\n"'),
    ("with a comma", "expected 4, but it was 5", "4", "5"),
    ("result", "Expected : 4 , Result : 5", "4", "5"),
    ("busted", "Expected objects to be equal.\nPassed in:\n(number) 5\nExpected:\n(number) 4", "4", "5"),
]


QUOTED = [
    ("AssertionError: assert 'it is so' == 'it is not'", "'it is not'", "'it is so'"),
    ("assert 'a == b' in ['c', 'd < e']", "['c', 'd < e']", "'a == b'"),
    ("assert [1, 'x in y'] == [2]", "[2]", "[1, 'x in y']"),
    ("assert it's == 3", "3", "it's"),
    ("AssertionError: 'a != b' != 'c is not d'", "'c is not d'", "'a != b'"),
    ('with expansion:\n  "if (b == 10) {\n}"\n  ==\n  "if (b == 11)"\n', '"if (b == 11)"', '"if (b == 10) {\n}"'),
    ("expected: 250 got: 500 (compared using eql?)", "250", "500"),
]


@pytest.mark.parametrize(("text", "expected", "actual"), QUOTED)
def test_what_stands_in_quotes_is_no_comparison(text: str, expected: str, actual: str) -> None:
    found = recover.failure(text)
    assert (found.expected, found.actual) == (expected, actual)


@pytest.mark.parametrize(("text", "expected", "actual"), [row[1:] for row in VALUES], ids=[row[0] for row in VALUES])
def test_expected_and_actual_are_found_in_the_words_of(text: str, expected: str, actual: str) -> None:
    found = recover.failure(text)
    assert (found.expected, found.actual) == (expected, actual)


@pytest.mark.parametrize(
    "text",
    [
        "no such thing",
        "connection refused",
        "expected",
        "it was expected to work",
        "a > b",
        "assert ready",
        "to be or not",
        "Expected example to fail since it is pending, but it passed.",
        "Expected element to be visible",
    ],
)
def test_prose_is_not_mistaken_for_a_comparison(text: str) -> None:
    assert values.comparison(text) == (None, None, "")


STACKS = [
    (
        "python",
        'File "/project/a.py", line 3, in f\n  File "/usr/lib/python3.11/json/x.py", line 9, in g',
        "/project/a.py",
        3,
    ),
    (
        "node",
        "Error: x\n    at f (/project/a.js:3:5)\n    at node:internal/x:1:1\n    at g (/project/b.js:9:1)",
        "/project/a.js",
        3,
    ),
    (
        "java",
        "\tat java.lang.X.y(X.java:1)\n\tat com.acme.A.f(A.java:3)\n\tat com.acme.B.g(B.java:9)",
        "com/acme/A.java",
        3,
    ),
    (
        "dotnet",
        "   at Acme.A.F() in /project/A.cs:line 3\n   at Acme.B.G() in /project/B.cs:line 9",
        "/project/A.cs",
        3,
    ),
    ("ruby", "/project/a.rb:3:in `f'\n/usr/lib/ruby/gems/x.rb:1:in `y'", "/project/a.rb", 3),
    (
        "java with a cause",
        "\tat com.acme.A.f(A.java:3)\nCaused by: java.lang.X: no\n\tat com.acme.B.g(B.java:9)\n\t... 5 more",
        "com/acme/A.java",
        3,
    ),
    ("cypress", "Error: x\n    at Context.eval (webpack:///./cypress/e2e/a.cy.js:3:5)", "cypress/e2e/a.cy.js", 3),
    ("boost", "[Error] - check x failed\n == [File] - a b/test.cpp\n == [Line] - 3\n", "a b/test.cpp", 3),
    ("unittest++", "src/a.cpp(3) : false", "src/a.cpp", 3),
    ("xunit itself", "   at Xunit.Assert.Equal() in /_/src/E.cs:line 9\n   at A.B() in /p/A.cs:line 3", "/p/A.cs", 3),
    ("go race", "DATA RACE\n  p.F()\n      /p/a.go:3 +0x39\n      /g/src/testing/testing.go:9 +0x1\n", "/p/a.go", 3),
    ("android", "\tat android.x.Y.z(Y.java:9)\n\tat com.acme.A.f(A.java:3)", "com/acme/A.java", 3),
    ("java alone", "X: no\n\tat jdk.internal.N.invoke(N.java:77)\n\tat a.T.b(Unknown Source)", "", 0),
    ("node itself", "no\n    at child_process.js:707:3", "", 0),
    ("pascal", "TFoo.Bar: no\n  foo.pas (line 3):[TFOO__BAR]:no", "foo.pas", 3),
    ("nette", "Failed: 1 should be 2 in tests/a.phpt(3) Tester\\Assert::same()", "tests/a.phpt", 3),
    ("test.pm", "# Failed test 4 in t/a.t at line 3", "t/a.t", 3),
    (
        "a project under GOPATH",
        "panic: x\n\t/go/src/example.com/shop/a.go:3 +0x1f\n",
        "/go/src/example.com/shop/a.go",
        3,
    ),
    (
        "a site under /usr/share",
        "no\n/usr/share/php/x.php:1\n/usr/share/nginx/html/A.php:3",
        "/usr/share/nginx/html/A.php",
        3,
    ),
    ("php", "/project/vendor/x.php:1\n/project/A.php:3", "/project/A.php", 3),
    ("elixir", "(ex_unit 1.14.0) lib/ex_unit/x.ex:1: X.y/1\n(fx 0.1.0) lib/a.ex:3: A.f/0", "lib/a.ex", 3),
    (
        "go",
        "panic: x\n\ngoroutine 1 [running]:\nmain.f()\n\t/project/a.go:3 +0x1d\nmain.g()\n\t/project/b.go:9 +0x1d",
        "/project/a.go",
        3,
    ),
    ("rust", "panicked at src/a.rs:3:9:\nboom", "src/a.rs", 3),
    ("bats", "(in test file test/a.bats, line 3)\n  `false' failed", "test/a.bats", 3),
    ("perl", "Failed test 'x'\n  at t/a.t line 3.", "t/a.t", 3),
    ("perl", "Failed test at t/a.t line 6.", "t/a.t", 6),
    ("windows", "   at Acme.A.F() in C:\\project\\A.cs:line 3", "C:\\project\\A.cs", 3),
]


@pytest.mark.parametrize(("text", "file", "line"), [row[1:] for row in STACKS], ids=[row[0] for row in STACKS])
def test_the_innermost_frame_of_the_project_is_the_place_in(text: str, file: str, line: int) -> None:
    found = recover.failure(text)
    assert (found.file, found.line) == (file, line)


def test_a_sanitizer_names_its_finding_and_the_frame_that_did_it() -> None:
    report = (
        "==1==ERROR: AddressSanitizer: heap-use-after-free on address 0x6020 at pc 0x55\n"
        "    #0 0x55a1 in main /project/a.c:2\n    #1 0x7f60 in __libc_start ../csu/libc-start.c:360\n"
        "freed by thread T0 here:\n    #0 0x7f60 in __interceptor_free ../../libsanitizer/x.cpp:52\n"
    )
    found = recover.sanitizer(report)
    assert found and (found.type, found.message, found.file, found.line) == (
        "AddressSanitizer",
        "heap-use-after-free",
        "/project/a.c",
        2,
    )
    undefined = recover.sanitizer("u.c:1:68: runtime error: signed integer overflow")
    assert undefined and (undefined.type, undefined.file, undefined.line) == ("UndefinedBehaviorSanitizer", "u.c", 1)
    race = recover.sanitizer(
        "WARNING: ThreadSanitizer: data race (pid=1)\n  Write\n    #0 0x1 in f /project/t.cc:9:3\n"
    )
    assert race and (race.type, race.message, race.line) == ("ThreadSanitizer", "data race", 9)
    assert recover.sanitizer("all quiet") is None


COMPILERS = [
    ("gcc", "src/a.c:3:5: error: 'x' undeclared", "src/a.c", 3, 5),
    ("clang fatal", "src/a.c:3:10: fatal error: 'x.h' file not found", "src/a.c", 3, 10),
    ("ld", "/usr/bin/ld: a.o: in function `main':\na.c:3: undefined reference to `f'", "a.c", 3, 0),
    ("go", "./a.go:3:5: undefined: x", "a.go", 3, 5),
    ("rustc", "error[E0425]: cannot find value `c`\n --> src/lib.rs:3:5\n  |", "src/lib.rs", 3, 5),
    ("tsc", "src/a.ts(3,5): error TS2322: Type 'string' is not assignable", "src/a.ts", 3, 5),
    ("tsc pretty", "src/a.ts:3:5 - error TS2322: Type 'string' is not assignable", "src/a.ts", 3, 5),
    ("javac", "src/A.java:3: error: ';' expected", "src/A.java", 3, 0),
    ("maven", "[ERROR] /project/A.java:[3,5] ';' expected", "/project/A.java", 3, 5),
    ("kotlinc", "e: file:///project/A.kt:3:5 Unresolved reference: x", "/project/A.kt", 3, 5),
    ("kotlinc old", "e: /project/A.kt: (3, 5): Unresolved reference: x", "/project/A.kt", 3, 5),
    ("scalac", "[error] /project/A.scala:3:5: not found: value x", "/project/A.scala", 3, 5),
    ("scala 3", "-- [E006] Not Found Error: src/A.scala:3:5 ------", "src/A.scala", 3, 5),
    ("csc", "/project/A.cs(3,5): error CS1002: ; expected [/project/A.csproj]", "/project/A.cs", 3, 5),
    ("swiftc", "/project/A.swift:3:5: error: cannot find 'x' in scope", "/project/A.swift", 3, 5),
    ("zig", "a.zig:3:5: error: use of undeclared identifier 'x'", "a.zig", 3, 5),
    ("elixir", "** (CompileError) lib/a.ex:3: undefined function x/0", "lib/a.ex", 3, 0),
    ("elixir 1.16", '    error: undefined variable "x"\n    │\n  3 │ x\n    │ ^\n    └─ lib/a.ex:3:5: A.f/0', "lib/a.ex", 3, 5),
    ("gleam", "error: Unknown variable\n  ┌─ /project/src/a.gleam:3:5\n", "/project/src/a.gleam", 3, 5),
    ("erlc", "src/a.erl:3:5: variable 'X' is unbound", "src/a.erl", 3, 5),
    ("php", "PHP Parse error:  syntax error, unexpected '}' in /project/a.php on line 3", "/project/a.php", 3, 0),
    ("ruby", "/project/a.rb:3: syntax error, unexpected end", "/project/a.rb", 3, 0),
    ("python", '  File "/project/a.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax', "/project/a.py", 3, 0),
    ("node", "/project/a.js:3\nconst = 3;\n      ^\n\nSyntaxError: Unexpected token '='", "/project/a.js", 3, 0),
    ("babel", "SyntaxError: /project/a.js: Unexpected token (3:5)", "/project/a.js", 3, 5),
    ("msbuild with blanks", r"  1>C:\a b\c.cs (3): error CS1: no [C:\x.csproj]", r"C:\a b\c.cs", 3, 0),
    ("msbuild fatal", "x/a.h(3) : fatal error C1083: Cannot open include file", "x/a.h", 3, 0),
    ("msbuild without a code", "x/a.h(3,5): error : use of undeclared identifier", "x/a.h", 3, 5),
    ("javac in ant", "    [javac] /p/A.java:3: error: ';' expected", "/p/A.java", 3, 0),
    ("esbuild", '/project/a.ts:3:5: ERROR: Expected ";" but found "x"', "/project/a.ts", 3, 5),
    ("dart", "lib/a.dart:3:5: Error: Expected ';' after this.", "lib/a.dart", 3, 5),
    ("nim", "/project/a.nim(3, 5) Error: undeclared identifier: 'x'", "/project/a.nim", 3, 5),
    ("ghc", "src/A.hs:3:5: error:\n    • Variable not in scope: x", "src/A.hs", 3, 5),
    ("ocaml", 'File "a.ml", line 3, characters 5-6:\nError: Unbound value x', "a.ml", 3, 5),
    ("perl", "syntax error at t/a.t line 3, near \"}\"", "t/a.t", 3, 0),
    ("bash", "./a.sh: line 3: syntax error near unexpected token `fi'", "a.sh", 3, 0),
    ("meson", "bin/meson.build:59:4: ERROR: Problem encountered: no help2man", "bin/meson.build", 59, 4),
    ("cmake", "CMake Error at CMakeLists.txt:3 (add_executable):\n  Cannot find source file:", "CMakeLists.txt", 3, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "file", "line", "column"), [row[1:] for row in COMPILERS], ids=[row[0] for row in COMPILERS]
)
def test_a_compile_error_is_placed_from_the_words_of(text: str, file: str, line: int, column: int) -> None:
    found = compiler.diagnostics(text)
    assert [(error.file, error.line, error.column) for error in found] == [(file, line, column)]
    assert found[0].message


@pytest.mark.parametrize(
    "text",
    [
        "12:30:45: error: the clock",
        "a warning: not an error",
        "    a_test.go:8: got 5, want 4",
        "https://a.b:80: error",
    ],
)
def test_a_log_line_is_not_a_compile_error(text: str) -> None:
    assert compiler.diagnostics(text) == []


def test_a_compile_error_repeated_for_every_target_is_reported_once() -> None:
    assert len(compiler.diagnostics("a.c:3:5: error: x\n" * 3)) == 1


def test_colours_line_ends_overwritten_lines_and_bad_bytes_are_cleaned() -> None:
    source = b"\x1b[31mred\x1b[0m\r\nprogress\rdone\n\xffbad\n"
    assert list(lines(io.BytesIO(source))) == ["red", "done", "\ufffdbad"]
    assert strip_control_characters("\ud800x") == "\ufffdx"


def test_long_texts_keep_both_ends() -> None:
    text = "a" * 50 + "b" * 50
    assert clip(text, 30).startswith("a" * 20) and clip(text, 30).endswith("b" * 10)
    ends, tail = HeadAndTail(20), Tail(10)
    for letter in text:
        ends.add(letter)
        tail.add(letter)
    assert (ends.text(), tail.text()) == ("a" * 10 + "b" * 10, "b" * 10)


def test_the_little_yaml_is_read() -> None:
    rows = [
        "  a: 'it''s'",
        "  at:",
        "    file: x.js",
        "    line: 3",
        "  stack: |-",
        "    one",
        "      two",
        '  end: "q"',
        "  - odd",
    ]
    wanted = {"a": "it's", "at.file": "x.js", "at.line": "3", "stack": "one\n  two", "end": "q"}
    assert yamlish.read(rows) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Failed asserting that 2 is not identical to 2.", ("2", "2", "!=")),
        ("Failed asserting that 3 is equal to or greater than 4.", ("4", "3", ">=")),
        ("Failed asserting that false is true.", ("true", "false", "")),
        ("Failed asserting that actual size 2 matches expected size 3.", ("3", "2", "")),
        ("Failed asserting that 'abc' contains \"x\".", ('"x"', "'abc'", "contains")),
        ("-- values do not equal --\nexpected : 4\nactual   : 3\n--", ("4", "3", "")),
        ('`[ "$output" = "hello" ]\' failed', ("hello", None, "==")),
        ("`[[ 3 -lt 2 ]]' failed", ("2", "3", "<")),
    ],
)
def test_values_are_found_in_what_shells_and_php_say(text: str, wanted: tuple[str, str | None, str]) -> None:
    assert values.comparison(text) == wanted


def test_the_projects_calls_below_those_of_a_framework_are_kept_in_every_failure() -> None:
    end = "\tat org.junit.Runner.run(Runner.java:1)\n\tat com.acme.Main.main(Main.java:{})"
    for number in (1, 2, 1):
        stack = f"\tat com.acme.Order.total(Order.java:{number})\n{end.format(7)}"
        found = recover.failure(stack, message="no").frames
        assert [(frame.file, frame.line) for frame in found] == [
            ("com/acme/Main.java", 7),
            ("com/acme/Order.java", number),
        ]
    found = recover.failure(f"\tat com.acme.Order.total(Order.java:1)\n{end.format(8)}", message="no").frames
    assert [frame.line for frame in found] == [8, 1]


def test_a_stack_keeps_the_innermost_twelve_of_the_projects_calls() -> None:
    rows = [f"\tat com.acme.Order.total(Order.java:{number})" for number in range(1, 21)]
    for at in (0, 3, 12, 20):
        stack = "\n".join([*rows[:at], "\tat org.junit.Runner.run(Runner.java:1)", *rows[at:]])
        found = recover.failure(stack, message="no").frames
        assert [frame.line for frame in found] == list(range(12, 0, -1))


def test_a_rule_is_left_out_of_a_text_only_if_the_rule_itself_speaks_of_something_expected() -> None:
    names = {name for name, _, _ in values._COMPARISONS}
    assert names >= values._EXPECTS_NOTHING
    assert all("xpect" in pattern for name, _, pattern in values._COMPARISONS if name not in values._EXPECTS_NOTHING)


def test_values_are_looked_for_in_what_pytest_says_and_not_in_the_source_it_shows() -> None:
    shown = 'def test():\n    """\n    got: 4\n    want: 3\n    """\n>   assert f() == 2'
    text = f"{shown}\nE   assert 1 == 2\nE    +  where 1 = f()\n\nt.py:3: AssertionError"
    found = recover.failure(text, message="assert 1 == 2\n +  where 1 = f()")
    assert (found.expected, found.actual, found.operator) == ("2", "1", "==")
    assert (found.type, found.file, found.line) == ("AssertionError", "t.py", 3)


def test_values_are_not_looked_for_in_a_stack_of_javascripts() -> None:
    text = "no\n    at expected 3, got 4 (/a/b.test.js:3:4)"
    found = recover.failure(text)
    assert (found.expected, found.actual) == (None, None)
    assert found.line == 3


def test_the_rarest_character_of_a_needle_is_one_of_it() -> None:
    for needle in ("Failed asserting that", "right:", "=> Obtained", "t"):
        assert rarest(needle) in needle
    assert rarest("Failed asserting that") == "F"


def test_a_pattern_for_a_line_is_tried_at_each_line_that_has_its_words() -> None:
    text = "assert nothing\n  assert 1 == 2\nE   assert 3 == 4"
    assert values.comparison(text) == ("4", "3", "==")


def test_what_is_foreign_is_so_on_windows_too() -> None:
    stack = "Error: no\n    at f (C:\\w\\node_modules\\lib\\a.js:3:5)\n    at g (C:\\w\\test\\b.js:7:1)\n"
    assert [(frame.file, frame.line) for frame in stacks.frames(stack)] == [("C:\\w\\test\\b.js", 7)]


def test_a_file_of_darts_may_have_backslashes() -> None:
    assert stacks.frames("test\\main_test.dart 13:9  main.<fn>.<fn>\n")[0].line == 13


def test_a_warning_of_erlangs_compiler_is_no_frame() -> None:
    assert stacks.frames("test/a_tests.erl:11:5: Warning: this clause cannot match\n") == []
    assert [frame.line for frame in stacks.frames("    (it 0.1.0) lib/it.ex:3: It.add/2\n")] == [3]


@pytest.mark.parametrize(
    ("text", "operator", "reported"),
    [
        ("AssertionError: 1 != 2", "==", "2"),
        ("AssertionError: False is not true", "is", "is true"),
        ("AssertionError: 3 not less than 2", "<", "< 2"),
        ("AssertionError: 1 not found in [2]", "in", "in [2]"),
        ("Expected values to be loosely equal:\n\n1 != 2\n", "==", "2"),
        ("assert 1 != 1", "!=", "!= 1"),
    ],
)
def test_a_printed_condition_that_did_not_hold_gives_the_expected_value(
    text: str, operator: str, reported: str
) -> None:
    found = recover.failure(text)
    assert (found.operator, expected_text(found)) == (operator, reported)


def test_a_message_is_searched_too_where_the_text_that_repeats_it_is_indented() -> None:
    found = recover.failure("def test():\n        E assert 1 == 2\n", message="assert 1 == 2")
    assert (found.expected, found.actual) == ("2", "1")


def test_what_nunit_says_in_lines_may_have_been_put_into_one() -> None:
    found = recover.failure("Expected failure   Expected: 4   But was:  5")
    assert (found.expected, found.actual) == ("4", "5")


def test_what_cmake_says_stands_below_the_place() -> None:
    (error,) = compiler.diagnostics(
        "CMake Error at a/CMakeLists.txt:4 (message):\n  utf8 not found.\n\n\n-- Configuring"
    )
    assert (error.file, error.line, error.message) == ("a/CMakeLists.txt", 4, "utf8 not found.")


def test_an_error_of_meson_is_called_mesons() -> None:
    (error,) = compiler.diagnostics("bin/meson.build:59:4: ERROR: Problem encountered: no help2man")
    assert error.tool == "meson"
