"""Failing bodies in JavaScript and TypeScript: rewritten where it is certain, and left alone elsewhere."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.failing_tests import FailingTests, with_failing_tests

MARK = ".length > 0"


def rewritten(text: str, path: str = "a.test.ts") -> tuple[str, FailingTests]:
    found = with_failing_tests(path, text)
    assert found, f"left alone: {text}"
    return found


@pytest.mark.parametrize(
    "text",
    [
        "test('adds', () => {|});", "it(\"adds\", async () => {| await x(); });", "it('adds', function () {| x(); });",
        "it('adds', async function named(done) {| done(); });", "it('adds', (t) => |t.is(1, 1));",
        "it('adds', t => |t.is(1, 1), 5000);", "it('adds', async ({ page }) => {| await page.x(); }, TIMEOUT);",
        "test('adds', { timeout: 10 }, () => {| x(); });", "test.only('adds', (): Promise<void> => {| x(); });",
        "it.concurrent('adds', async () => |await x());", "test(`adds`, () => {| x(`a ${'`'} ${{ a: '}' }}`); });",
        "it(\n  'adds', // why\n  () => {| x('it(\"subtracts\", () => {});') },\n);",
        "await test('adds', () => |/[/'\"`(]/.test(x));",
        "const { test } = require('node:test');\ntest('adds', () => {|});",
        "import { expect, test } from 'vitest';\ntest('adds', () => {|});",
        "import test from 'ava';\ntest('adds', t => {|});", "#!/usr/bin/env node\nit('adds', () => {|});",
        "it('adds', () => {| render(<p>Don't <b>it</b></p>); });", "it.skipIf(x)('adds', () => {|});",
        "const { it } = exports.lab = require('@hapi/lab').script();\nit('adds', () => {|});",
        "const Lab = require('@hapi/lab');\nconst { it } = exports.lab = Lab.script();\nit('adds', () => |x());",
        "import * as Lab from '@hapi/lab';\nconst lab = Lab.script();\nconst { it } = lab;\nit('adds', () => {|});",
        "import { test } from '@playwright/test';\ntest.use({ a: 1 });\ntest.skip(!a, 'b');\ntest('adds', () => {|});",
        "import { type Mock, it } from 'vitest';\nit('adds', () => {|});", "it('adds', () => |a < b && c > d);",
    ],
)  # fmt: skip
def test_a_failure_is_put_first_into_the_body(text: str) -> None:
    before, after = text.split("|")
    changed, tests = rewritten(before + after)
    assert changed.startswith(before) and changed.endswith(after) and changed.count(MARK) == 1
    assert "throw new Error(" in changed[len(before) : len(changed) - len(after)]
    assert tests.must_fail([], "adds") and not tests.must_fail([], "adds two") and not tests.must_fail(["x"], "adds")


BEGIN = "let $b = false; let $n = 0; try {"


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("it('adds', () => {||});", f" {BEGIN}", " }"),
        ("it('adds', function () {| x(); return 1 |});", f" {BEGIN}", " }"),
        ("it('adds', async () => |await x({})|, 500);", f"{{ {BEGIN} return ", ";  }"),
    ],
)
def test_a_body_runs_and_then_fails(text: str, begins: str, ends: str) -> None:
    before, body, after = text.split("|")
    found = with_failing_tests("a.test.ts", before + body + after, run=True)
    assert found and found[1].must_fail([], "adds")
    assert found[0].startswith(f"{before}{begins}{body}{ends} catch (e) {{") and found[0].endswith(after)


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("import assert from 'node:assert';\nit('a', () => { assert.equal(x(), 1); });", "assert.equal(r[0], r[1])"),
        ("const { assert } = require('chai');\nit('a', () => { assert.ok(x()); });", "assert.ok(!r[0])"),
        ("it('a', () => { expect(x()).not.toBe(1); });", "expect(r[0]).toBe(r[1])"),
        ("import { expect } from 'chai';\nit('a', () => { expect(x).to.be.above(1); });", ""),
        ("import { expect } from 'chai';\nit('a', () => { expect(x).to.equal(1); });", "expect(r[0]).to.equal(r[1])"),
        ("import { assert } from './own';\nit('a', () => { assert.equal(x(), 1); });", ""),
        ("function expect(x) { return soft(x); }\nit('a', () => { expect(x()).toBe(1); });", ""),
        ("it('a', () => { assert.equal(x(), 1); });", ""),
    ],
)  # fmt: skip
def test_a_known_assertion_of_the_file_is_asked_to_refuse_what_is_false(text: str, called: str) -> None:
    found = with_failing_tests("a.test.js", text, run=True)
    assert found and found[0].count("catch (e) {}") == bool(called) and f"try {{ {called};" * bool(called) in found[0]


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("{ expect(f()).toBe(3); expect(g()).toEqual('a') }", "{ expect(f()).toBe(10093); expect(g()).toEqual('a~') }"),
        ("{\n  x()\n  expect(f(1)).toBe(-0.5)\n}", "{\n  x()\n  expect(f(1)).toBe(-10090.5)\n}"),
        ("expect(3).toBe(f(1))", "expect(10093).toBe(f(1))"),
        ("{ expect(await f(1)).to.deep.equal(3); }", "{ expect(await f(1)).to.deep.equal(10093); }"),
        ("{ expect(1).toBe(1); expect(f()).not.toBe(1); expect(f()).resolves.toBe(1); }", ""),
        ("{ if (x) expect(f()).toBe(1); for (;;)\n expect(f()).toBe(1)\n if (x) { } else\n expect(f()).toBe(1) }", ""),
        ("{ if (x) return; expect(f()).toBe(1); }", ""),
        ("{ expect(f()).toBe(0x1); expect(f()).toBe(x); expect(f()).toBe(`a`); y(() => { expect(f()).toBe(1) }) }", ""),
        ("{ assert.equal(f(), 1); }", ""),
    ],
)  # fmt: skip
def test_the_values_that_a_body_certainly_expects_are_replaced(body: str, changed: str) -> None:
    found = with_failing_tests("a.test.js", f"it('adds', async () => {body});", run=True)
    inside = (changed or body).strip("{}")
    assert found and inside in found[0] and ("if (!$b)" in found[0]) == bool(changed)


def test_in_playwright_a_suite_belongs_to_the_word_for_tests() -> None:
    changed, tests = rewritten(
        "import { test } from '@playwright/test';\ntest.describe.configure({ mode: 'serial' });\n"
        "test.describe('a sum', () => { test.beforeEach(() => {}); test('adds', () => {}); });\n"
        "test.fail('fails', () => {});\ntest.describe.parallel('b', () => { test('fails', () => {}); });\n"
    )
    assert changed.count(MARK) == 2 and tests.must_fail(["a sum"], "adds") and not tests.must_fail([], "adds")
    assert not tests.must_fail(["b"], "fails")


def test_in_uvu_a_suite_is_the_word_for_its_tests() -> None:
    changed, tests = rewritten(
        "import { suite, test } from 'uvu';\nconst Sum = suite('a sum');\nSum.before.each(() => {});\n"
        "Sum('adds', () => {});\nSum.skip('later', () => {});\nSum.run();\ntest('adds', () => {});\ntest.run();\n"
    )
    assert changed.count(MARK) == 2 and tests.must_fail(["a sum"], "adds") and tests.must_fail([], "adds")
    assert with_failing_tests("a.js", f"{changed}\nwrap(Sum);\n") is None


def test_a_test_is_known_by_its_suites() -> None:
    _, tests = rewritten(
        "describe('a \\'sum\\'', () => { describe.only(Sum.name, function () { it('adds', () => {}); }); });\n"
        "describe('b', () => it('adds', () => {}));"
    )
    assert tests.must_fail(["a 'sum'", "Sum"], "adds") and tests.must_fail(["b"], "adds")
    assert not tests.must_fail([], "adds") and not tests.must_fail(["a 'sum'"], "adds")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("it.each([[1, 2]])('adds %i to %s', (a) => {});", "adds 1 to 2"),
        ("it.each`a | b\n${1} | ${2}`('adds $a to $b.c', ({ a }) => {});", "adds 1 to 2"),
        ("for (const x of [1]) { it(`adds ${x}`, () => {}); }", "adds 1"),
        ("test.for([1])('adds %o', ([a]) => {});", "adds { a: 1 }"),
    ],
)
def test_a_name_with_gaps_is_known_by_the_rest(text: str, name: str) -> None:
    _, tests = rewritten(text)
    assert tests.must_fail([], name) and not tests.must_fail([], "subtracts 1 to 2")


def test_a_name_that_is_all_gaps_proves_nothing() -> None:
    assert with_failing_tests("a.js", "it.each([1])('%s', () => {});\nit(name, () => {});") is None


@pytest.mark.parametrize(
    "other",
    [
        "it.skip('adds', () => {});", "it('adds', check);", "test.fails('adds', () => {});", "test.failing('adds', f);",
        "it('adds', { fails: true }, () => {});", "it('adds', () => {}, { fails: true });",
        "it('adds', {...o}, () => {});",
        "it('adds', wrap(() => {}));", "it('adds', () => {}, options);", "it('adds', function* () {});",
        "it('adds', function () {}.bind(x));", "it.todo('adds');", "it.each([1])('%s', check);", "it(`${x}`, check);",
    ],
)  # fmt: skip
def test_a_test_that_is_not_plain_keeps_its_body_and_proves_nothing(other: str) -> None:
    changed, tests = rewritten(f"it('adds', () => {{}});\nit('other', () => {{}});\n{other}")
    assert changed.endswith(other) and not tests.must_fail([], "adds")
    assert tests.must_fail([], "other") is ("%s" not in other and "${x}" not in other)


@pytest.mark.parametrize(
    "text",
    [
        "import { it } from './helpers';", "import { test as it } from 'vitest';", "import * as t from 'vitest';",
        "const it = wrap(base);", "const { it } = lab;", "function it(name, f) { base(name, invert(f)); }", "run(it);",
        "const check = it;", "it(name, check);", "it.extend({});", "test.each<number>([1])('x', f);",
        "const t = require('node:test');",
        "describe('x', { fails: true }, () => {});", "describe.fails('x', () => {});", "f(a));", "'", "`${", "f({);",
        "const Lab = require('@hapi/lab');\nconst { it } = lab;",
        "const Lab = require('@hapi/lab');\nconst { a: it } = Lab.script();",
        "const { it } = Lab.script();", "test.use({});", "test.describe('x', () => {});",
        "expectTypeOf(x);", "//# sourceMappingURL=a.map", "// @generated", "for (const test of tests) {}",
    ],
)  # fmt: skip
def test_a_file_in_which_tests_may_be_something_else_is_left_alone(text: str) -> None:
    assert with_failing_tests("a.test.ts", f"{text}\nit('adds', () => {{}});\n") is None


@pytest.mark.parametrize("path", ["dist/a.test.js", "a.test-d.ts", "a.py", "a.rb", "node_modules/x/test.js"])
def test_what_is_built_or_of_another_language_is_left_alone(path: str) -> None:
    assert with_failing_tests(path, "it('adds', () => {});") is None


@pytest.mark.parametrize(
    "text",
    [
        "const x = /it('adds', () => {})/; // it('adds', () => {})\n", "/* it('adds', () => {}) */",
        "x.it('adds', () => {});",
        "const s = `it('adds', () => {}) ${'it(\"adds\", () => {})'}`;", "t.test('adds', () => {});",
        "({ it: 1, test: 2 });",
    ],
)  # fmt: skip
def test_what_only_looks_like_a_test_is_none(text: str) -> None:
    changed, tests = rewritten(f"{text}\nit('other', () => {{}});")
    assert changed.startswith(text) and changed.count(MARK) == 1 and not tests.must_fail([], "adds")


@pytest.mark.parametrize(
    "piece", ["/*", "'\\'", "=/\\/", "=/[/", "`${", "it(", "describe('a',", "const {", "'a' ", "<a>' </a>"]
)
def test_text_made_to_stall_its_reader_takes_time_by_length_only(piece: str) -> None:
    start = process_time()
    with_failing_tests("a.js", "</" + piece * (250_000 // len(piece)))
    assert process_time() - start < 10


def test_a_name_of_many_gaps_is_compared_with_a_long_name_at_once() -> None:
    gaps = "${x}a" * 200
    _, tests = rewritten(f"it(`{gaps}`, () => {{}});")
    assert tests.must_fail([], "a" * 100_000) and not tests.must_fail([], "a" * 100_000 + "b")


PIECES = st.sampled_from(
    ["it(", "test.each", "describe", "'a'", "`x${", "}`", "`", "'", "(", ")", "{", "}", ",", "=>", " () ", "async ",
     "function", "/", "//", "\n", "a", "\\", "[1]", ".", ":", "import ", "const ", " from ", "'vitest'", "require",
     "=", "<", "*/", "/*"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_rewritten_by_additions_only_or_left_alone(text: str) -> None:
    found = with_failing_tests("a.js", text)
    left = iter(found[0] if found else text)
    assert all(letter in left for letter in text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C"]), min_size=1))
def test_any_name_is_found_again(name: str) -> None:
    for quote in "'\"`":
        escaped = name.replace("\\", "\\\\").replace(quote, f"\\{quote}").replace("${", "\\${")
        if "\u2028" not in name and "\u2029" not in name and "${" not in name:
            _, tests = rewritten(f"it({quote}{escaped}{quote}, () => {{}});")
            assert tests.must_fail([], name)


@pytest.mark.parametrize(
    "function", ["done => {}", "function (done) {}", "async function named(cb) {}", "(next) => x()"]
)
def test_a_body_that_may_say_itself_when_it_is_done_fails_at_once(function: str) -> None:
    found = with_failing_tests("a.test.js", f"it('a', {function});", run=True)
    assert found and found == with_failing_tests("a.test.js", f"it('a', {function});")
    with_context = with_failing_tests("a.test.js", "it('a', t => {}); it('b', async ({ page }) => {});", run=True)
    assert with_context and with_context[0].count("finally") == 2
