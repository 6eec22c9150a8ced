"""Adds a canary, a test that cannot pass, to a test file: faked results show it as passed.

It is added to the file itself, so that it is selected with the file and can use its imports. Its name is an
unpredictable token. A fake that spares such names is found by `core.failing_tests`: the same tests, which must fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Writer = Callable[[str, str], str]


def with_canary(path: str, text: str, token: str) -> str:
    """Return the file with a canary named after the token; '' if its language is not supported."""
    write = _WRITERS.get(path.rsplit(".", 1)[-1])
    return write(text, token) if write else ""


def _python(text: str, token: str) -> str:
    """A method where the tests are methods of test cases, which unittest runs too; else a function."""
    if "TestCase" in text:
        return (
            f"{text}\n\nimport unittest as {token}\n\n\nclass Case_{token}({token}.TestCase):\n"
            f"    def test_{token}(self):\n        self.assertEqual(1, 2)\n"
        )
    if re.search(r"^\s*(?:async\s+)?def test", text, re.MULTILINE):
        return f"{text}\n\ndef test_{token}():\n    assert 1 == 2\n"
    return ""


def _javascript(text: str, token: str) -> str:
    """By the word the file itself calls its tests with: imported or global, whichever runner it is."""
    word = re.search(r"^\s*(?P<word>it|test|Deno\.test)\s*(?:\.\w+\s*)?\(", text, re.MULTILINE)
    if not word or re.search(r"['\"]uvu['\"]", text):  # uvu's are run by the last line of the file
        return ""
    if re.search(r"['\"]tape['\"]", text):
        return f"{text}\n;{word['word']}('{token}', (t) => {{ t.fail('{token}'); t.end(); }});\n"
    return f"{text}\n;{word['word']}('{token}', () => {{ throw new Error('{token}'); }});\n"


def _go(text: str, token: str) -> str:
    if not re.search(r"^\s*(?:import\s+)?\"testing\"\s*$", text, re.MULTILINE):
        return ""
    return f'{text}\nfunc Test_{token}(t *testing.T) {{ t.Fatal("{token}") }}\n'


def _rust(text: str, token: str) -> str:
    if "#[test]" not in text and "::test]" not in text:
        return ""
    return f"{text}\n#[cfg(test)]\nmod {token} {{\n    #[test]\n    fn {token}() {{\n        panic!();\n    }}\n}}\n"


def _ruby(text: str, token: str) -> str:
    if re.search(r"^\s*(?:RSpec\.)?describe\b", text, re.MULTILINE) and re.search(r"\bexpect\b|\bis_expected\b", text):
        return f"{text}\nRSpec.describe('{token}') {{ it('{token}') {{ raise '{token}' }} }}\n"
    parent = re.search(r"^class \w+ < (?P<parent>[\w:]*Test\w*)\s*$", text, re.MULTILINE)
    if not parent:
        return ""
    return f"{text}\nclass Test_{token} < {parent['parent']}\n  def test_{token}\n    flunk\n  end\nend\n"


def _in_class(method: str, known_by: str) -> Writer:
    """Languages whose tests are methods: one more before the last brace of the file."""

    def write(text: str, token: str) -> str:
        last = text.rfind("}")
        if last < 0 or not re.search(known_by, text):
            return ""
        return f"{text[:last]}\n    {method.replace('TOKEN', token)}\n{text[last:]}"

    return write


def _csharp(text: str, token: str) -> str:
    mark = re.search(r"\[(?P<mark>Fact|Test|TestMethod)\b", text)
    if not mark:
        return ""
    closing = list(re.finditer(r"^(?P<indent>\s*)\}", text, re.MULTILINE))
    spaced = "namespace" in text and ";" not in text.partition("namespace")[2].partition("\n")[0]
    if len(closing) < 1 + spaced:
        return ""
    at = closing[-1 - spaced].start()
    method = f'[{mark["mark"]}] public void Test_{token}() {{ throw new System.Exception("{token}"); }}'
    return f"{text[:at]}\n    {method}\n{text[at:]}"


def _cpp(text: str, token: str) -> str:
    if re.search(r"^TEST(?:_F|_P)?\(", text, re.MULTILINE):
        return f"{text}\nTEST({token}, {token}) {{ FAIL(); }}\n"
    if re.search(r"^TEST_CASE\(", text, re.MULTILINE):
        return f'{text}\nTEST_CASE("{token}") {{ REQUIRE(1 == 2); }}\n'
    return ""


_METHOD = '@Test public void test_TOKEN() { throw new AssertionError("TOKEN"); }'
_FUN = '@Test fun test_TOKEN() { throw AssertionError("TOKEN") }'
_FUNCTION = "public function test_TOKEN(): void { $this->fail('TOKEN'); }"
_WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("py",), _python),
    **dict.fromkeys(("js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx"), _javascript),
    **dict.fromkeys(("cc", "cpp", "cxx"), _cpp),
    "go": _go,
    "rs": _rust,
    "rb": _ruby,
    "cs": _csharp,
    "java": _in_class(_METHOD, r"@Test\b"),
    "kt": _in_class(_FUN, r"@Test\b"),
    "php": _in_class(_FUNCTION, r"extends\s+\\?(?:[\w\\]+\\)?\w*TestCase\b"),
}
