"""Canaries: a test that cannot pass, in the form of the tests of the file."""

from __future__ import annotations

import pytest

from ratchet.core.canary import with_canary

FORMS = [
    ("t.py", "def test_a():\n    pass\n", "\n\ndef test_T():\n    assert 1 == 2\n"),
    ("t.py", "    async def test_a(self): ...\n", "\n\ndef test_T():\n    assert 1 == 2\n"),
    ("t.py", "class A(TestCase):\n    pass\n",
     "\n\nimport unittest as T\n\n\nclass Case_T(T.TestCase):\n"
     "    def test_T(self):\n        self.assertEqual(1, 2)\n"),
    ("t.test.ts", "it('a', f)\n", "\n;it('T', () => { throw new Error('T'); });\n"),
    ("t.js", "  test.only(a)\n", "\n;test('T', () => { throw new Error('T'); });\n"),
    ("t.ts", "Deno.test(a)\n", "\n;Deno.test('T', () => { throw new Error('T'); });\n"),
    ("t.js", "import t from 'tape'\ntest('a', f)\n", "\n;test('T', (t) => { t.fail('T'); t.end(); });\n"),
    ("a_test.go", 'package a\nimport "testing"\n', '\nfunc Test_T(t *testing.T) { t.Fatal("T") }\n'),
    ("a_test.go", 'import (\n\t"testing"\n)\n', '\nfunc Test_T(t *testing.T) { t.Fatal("T") }\n'),
    ("t.rs", "#[test]\nfn a() {}\n",
     "\n#[cfg(test)]\nmod T {\n    #[test]\n    fn T() {\n        panic!();\n    }\n}\n"),
    ("t.rs", "#[tokio::test]\nasync fn a() {}\n",
     "\n#[cfg(test)]\nmod T {\n    #[test]\n    fn T() {\n        panic!();\n    }\n}\n"),
    ("a_spec.rb", "describe A do\n  expect(1)\nend\n", "\nRSpec.describe('T') { it('T') { raise 'T' } }\n"),
    ("a_test.rb", "class ATest < Minitest::Test\nend\n",
     "\nclass Test_T < Minitest::Test\n  def test_T\n    flunk\n  end\nend\n"),
    ("a.cpp", "TEST_F(A, b) {}\n", "\nTEST(T, T) { FAIL(); }\n"),
    ("a.cc", 'TEST_CASE("a") {}\n', '\nTEST_CASE("T") { REQUIRE(1 == 2); }\n'),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "added"), FORMS)
def test_a_function_is_appended(path: str, text: str, added: str) -> None:
    assert with_canary(path, text, "T") == text + added


@pytest.mark.parametrize(
    ("path", "before", "after", "method"),
    [
        ("A.java", "class A {\n  @Test void a() {}\n", "}\n",
         '@Test public void test_T() { throw new AssertionError("T"); }'),
        ("A.kt", "class A {\n  @Test fun a() {}\n", "}\n", '@Test fun test_T() { throw AssertionError("T") }'),
        ("ATest.php", "class ATest extends \\PHPUnit\\TestCase {\n", "}\n",
         "public function test_T(): void { $this->fail('T'); }"),
        ("A.cs", "namespace N {\nclass A {\n  [Fact] void a() {}\n", "}\n}\n",
         '[Fact] public void Test_T() { throw new System.Exception("T"); }'),
        ("A.cs", "namespace N;\nclass A {\n  [TestMethod] void a() {}\n", "}\n",
         '[TestMethod] public void Test_T() { throw new System.Exception("T"); }'),
    ],
)  # fmt: skip
def test_a_method_is_added_to_the_last_class(path: str, before: str, after: str, method: str) -> None:
    assert with_canary(path, before + after, "T").split() == f"{before} {method} {after}".split()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "def helper():\n    pass\n"), ("a.js", "export const it = 1\n"),
        ("a.js", "import { test } from 'uvu'\ntest('a', f)\n"), ("a_test.go", "package a\n"),
        ("a.rs", "fn a() {}\n"), ("a.rb", "describe 'a' do\nend\n"), ("a.rb", "class A < Base\nend\n"),
        ("A.java", "class A {}\n"), ("A.java", "@Test\n"), ("A.cs", "class A {\n}\n"), ("A.cs", "[Fact]\n"),
        ("A.cs", "namespace N {\n[Fact]\n}\n"), ("a.php", "class A {\n}\n"), ("a.cpp", "int main() {}\n"),
        ("a.txt", "def test_a(): ...\n"),
    ],
)  # fmt: skip
def test_a_file_without_tests_of_a_known_form_gets_none(path: str, text: str) -> None:
    assert with_canary(path, text, "T") == ""
