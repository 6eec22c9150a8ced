"""Recognises compiler errors about code that does not exist yet: how a new test is red where a test is compiled."""

from __future__ import annotations

import re

from ratchet.core.report import Diagnostic

COMPILED = (".go", ".rs", ".java", ".kt", ".scala", ".swift", ".cs", ".fs", ".c", ".cc", ".cpp", ".cxx", ".hs")
# rustc, TypeScript, C#: the error has a number.
_CODES = {
    "E0061", "E0405", "E0407", "E0412", "E0422", "E0423", "E0425", "E0531", "E0560", "E0574", "E0599", "E0609",
    "TS2304", "TS2305", "TS2339", "TS2551", "TS2552", "TS2554", "TS2614", "TS2694", "TS2724",
    "CS0103", "CS0117", "CS0234", "CS0246", "CS1061", "CS1501", "CS1729", "CS1739", "CS7036",
}  # fmt: skip
_WORDS = re.compile(
    r"\bundefined: |\bundefined \((?:type|value) |\bunknown field\b|has no field or method"  # Go
    r"|(?:not enough|too many) arguments (?:in|to|for)|assignment mismatch: "
    r"|cannot find symbol|cannot be applied to given types|no suitable (?:method|constructor) found"  # Java
    r"|unresolved reference|no value passed for parameter|no parameter with name"  # Kotlin
    r"|\bnot found: (?:value|type|object)|\bnot found: \w+$|is not a member of"  # Scala, C++
    r"|cannot find '[^']*' in scope|has no member\b|extra argument"  # Swift, C++
    r"|not declared in this scope|undeclared|no member named|no matching function|no matching member function"
    r"|implicit declaration of function|undefined reference to"  # C, C++
    r"|unresolved import `[^`]*::|could not find `[^`]*` in `|undeclared type"  # Rust, within a crate that is there
    r"|cannot find (?:function|value|type|macro|struct|trait|tuple struct/variant|method) `"
    r"|variable not in scope|does not export|undefined (?:function|variable|subroutine)"  # Haskell, Elixir, Perl
    r"|cannot find module '\.",  # TypeScript: a file of the project's own
    re.IGNORECASE,
)
_PACKAGE = re.compile(r"undeclared crate|unlinked crate|use of unresolved module|missing crate", re.IGNORECASE)


def is_missing_code(error: Diagnostic) -> bool:
    """Whether a compiler says that something which the file uses is not there, and not a package to install."""
    if _PACKAGE.search(error.message):
        return False
    return error.code in _CODES or _WORDS.search(error.message) is not None
