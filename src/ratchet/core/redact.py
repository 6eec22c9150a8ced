"""Redacts secrets in stored and displayed text: registered values, and keys of known formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from typing import Any

import msgspec

from ratchet.core.foreign_json import MALFORMED
from ratchet.core.secret_forms import encoded_forms, secret_patterns, without_layout

MARK = "[redacted]"
SECRET_MIN_CHARS = 8  # shorter values occur in ordinary text
SECRET_NAME = re.compile(
    r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(?:^|_)(?:PASS|PAT))S?(_|$)", re.IGNORECASE
)

_PATTERNS = (
    r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{20,}",  # Anthropic, OpenAI, OpenRouter
    r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}",
    r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}",
    r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{30,}",
    r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}",
    r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Z])",
    r"(?<![A-Za-z0-9])xox[abprs]-[A-Za-z0-9-]{10,}",
    # Bounded behind a sign that tokens may hold: in text that repeats their beginning, each would be read to the end.
    r"(?:(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{10,400}|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,})\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    # Only headers, base64 and white space in between: text that merely names both markers is no key. A backslash and a
    # letter is a line break as sources and .env files spell it.
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\s*(?:Proc-Type|DEK-Info): [A-Za-z0-9,-]+)*(?:[A-Za-z0-9+/=\s]|\\[rn])*"
    r"-----END [A-Z ]*PRIVATE KEY-----",
)


@cache
def _known() -> re.Pattern[bytes]:
    """Compiled when it is first needed: it takes a tenth of a short command's time."""
    return re.compile("|".join(_PATTERNS).encode())


_EXAMPLE = re.compile(rb"example|sample|dummy|fake|placeholder|(?:x{4}|0{6}|1234567)", re.IGNORECASE)


class Redactor:
    """Replaces each of `values`, plain and encoded; longer values first, since one may contain another.

    Patterns see decoded strings: in an encoding a match could span several strings, or miss a key behind an escape.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        kept = sorted({value for value in values if len(value) >= SECRET_MIN_CHARS}, key=len, reverse=True)
        self._values = kept
        self._encoded = [form for value in kept for form in encoded_forms(value)]
        self._patterns = [pattern for value in kept for pattern in secret_patterns(value)]

    @cached_property
    def _own(self) -> re.Pattern[bytes] | None:
        return re.compile("|".join(self._patterns).encode()) if self._patterns else None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join([*self._patterns, *_PATTERNS]))

    def text(self, text: str) -> str:
        return self._pattern.sub(MARK, text)

    def document(self, content: bytes) -> bytes:
        """Redact every string of a JSON document. Content that is not JSON is redacted as a log."""
        try:
            value = msgspec.json.decode(content)
            clean = self._value(value)
            return content if clean == value else msgspec.json.encode(clean)
        except MALFORMED:
            return self.log(content)

    def log(self, content: bytes) -> bytes:
        """Redact plain text, in which single lines may be JSON documents."""
        lines = content.split(b"\n")
        for number, line in enumerate(lines):
            if line[:1] in (b"{", b"["):
                lines[number] = self._line(line)
        content = b"\n".join(lines)
        # Bytes that are not UTF-8 survive as lone surrogates.
        text = content.decode(errors="surrogateescape")
        return content if (clean := self.text(text)) == text else clean.encode(errors="surrogateescape")

    def _line(self, line: bytes) -> bytes:
        try:
            value = msgspec.json.decode(line)
            return line if (clean := self._value(value)) == value else msgspec.json.encode(clean)
        except MALFORMED:
            return line

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, dict):
            return {self.text(name): self._value(each) for name, each in value.items()}
        return value

    def new_secrets(self, content: bytes, before: bytes = b"", *, examples: bool = False) -> list[str]:
        """Return what kinds of secrets the content holds that `before` did not.

        With `examples`, keys of known formats are taken for made-up ones; registered values never are.
        """
        if b"\0" in content:  # as UTF-16 and UTF-32 write plain letters
            content, before = (text + b"\n" + text.replace(b"\0", b"") for text in (content, before))
        registered = (self._own and _new(self._own, content, before)) or self._laid_out(content, before)
        key = not examples and any(not _EXAMPLE.search(found) for found in _new(_known(), content, before))
        return [*(["the value of a secret variable"] if registered else []), *(["a key or token"] if key else [])]

    def holds_value(self, content: bytes) -> bool:
        """Whether the content holds a value as it is, or encoded in one piece: quick, for what is very large."""
        plain = [form for value in self._values for form in (value, value[::-1])]
        return any(form.encode(errors="surrogateescape") in content for form in (*plain, *self._encoded))

    def _laid_out(self, content: bytes, before: bytes) -> bool:
        """Whether the content holds a value in an encoding that is broken into lines or strings."""
        if not self._encoded:
            return False
        now, old = (without_layout(each.decode("latin-1")) for each in (content, before))
        return any(form in now and form not in old for form in self._encoded)


def _new(pattern: re.Pattern[bytes], content: bytes, before: bytes) -> set[bytes]:
    return {found[0] for found in pattern.finditer(content)} - {found[0] for found in pattern.finditer(before)}


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables with secret names; paths of credential files are not secret."""
    return [value for name, value in environ.items() if SECRET_NAME.search(name) and not value.startswith("/")]
