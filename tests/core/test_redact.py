"""Secrets are taken out, and nothing else is."""

from __future__ import annotations

import base64
import json
import re
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratchet.core.redact import MARK, SECRET_MIN_CHARS, Redactor, secrets_in


def test_registered_values_go_also_as_json_writes_them_and_one_within_another() -> None:
    redact = Redactor(["hunter2-hunter2", 'with "quotes" in it', "hunter2-hunter2-longer"])
    assert redact.text("a hunter2-hunter2-longer b") == f"a {MARK} b"
    assert MARK in redact.text(json.dumps({"said": 'with "quotes" in it'}))
    assert redact.log(b"x hunter2-hunter2\xff") == f"x {MARK}".encode() + b"\xff"


@pytest.mark.parametrize(
    "secret",
    ["sk-ant-" + "a1" * 20, "AIza" + "b" * 35, "ghp_" + "c" * 36, "AKIA" + "D" * 16, "glpat-" + "e" * 20,
     "eyJ" + "f" * 12 + ".eyJ" + "g" * 12 + "." + "h" * 12,
    "eyJ" + "f" * 1200 + ".eyJ" + "g" * 12 + "." + "h" * 12,  # with certificates in its head
     "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
     "-----BEGIN PRIVATE KEY-----\\nabc+/=\\n-----END PRIVATE KEY-----",
     "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: D,0\n\nabc\n-----END RSA PRIVATE KEY-----"],
)  # fmt: skip
def test_what_looks_like_a_key_of_a_known_kind_goes_unregistered(secret: str) -> None:
    assert Redactor().text(f"key={secret};") == f"key={MARK};"


@pytest.mark.parametrize("text", ["task-" + "a" * 30, "run-20261116-051428-0123abcd", "ik:" + "a" * 64, "risk-free"])
def test_our_own_names_stay(text: str) -> None:
    assert Redactor(["short"]).text(f"{text} short") == f"{text} short"


def test_variables_are_secret_by_their_names() -> None:
    env = {"ANTHROPIC_API_KEY": "k" * 9, "GH_TOKEN": "t" * 9, "KEYBOARD": "qwertzuio", "TOKENIZERS_PARALLELISM": "true",
           "GOOGLE_CREDENTIALS": "/home/x/key.json", "PATH": "/bin"}  # fmt: skip
    assert secrets_in(env) == ["k" * 9, "t" * 9]


HEAD, FOOT = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"


def test_the_two_markers_of_a_key_in_different_strings_hide_nothing_between_them() -> None:
    report = msgspec.json.encode({"tests": [{"id": f"t[{HEAD}]"}, {"id": "t::b"}, {"id": f"t[{FOOT}]"}]})
    assert Redactor().document(report) == report
    assert Redactor().log(report) == report
    text = f"accepts {HEAD} without, and 'an {FOOT} line'"
    assert Redactor().text(text) == text


def test_a_key_behind_an_escaped_line_break_is_redacted_in_a_document_and_in_a_line_of_a_log() -> None:
    key = "sk-ant-" + "a1" * 20
    document = msgspec.json.encode({"output": f"first\n{key}", key: [1.5, None]})
    for clean in (Redactor().document(document), Redactor().log(b"plain\n" + document).partition(b"\n")[2]):
        assert msgspec.json.decode(clean) == {"output": f"first\n{MARK}", MARK: [1.5, None]}


def test_a_key_of_several_lines_is_redacted_in_a_document_and_numbers_are_not_touched() -> None:
    document = msgspec.json.encode({"pem": f"{HEAD}\nMIIB\n{FOOT}", "size": 1234567890})
    assert msgspec.json.decode(Redactor(["1234567890"]).document(document)) == {"pem": MARK, "size": 1234567890}


VALUE = "hunter2-hunter2-and-more-of-it"
RAW = VALUE.encode()
WRITTEN_DOWN = {
    "plain": RAW,
    "reversed": RAW[::-1],
    "spaced": " ".join(VALUE).encode(),
    "base64 within a file": base64.b64encode(b"export KEY=" + RAW + b"\n"),
    "base64 in lines": base64.encodebytes(b"x" * 50 + RAW + b"x" * 50),
    "hexadecimal in lines": b"\n".join(re.findall(b".{1,20}", RAW.hex().encode())),
    "base64 in strings": b'["' + base64.b64encode(RAW)[:20] + b'",\n "' + base64.b64encode(RAW)[20:] + b'"]',
    "percent signs": "".join(f"%{byte:02X}" for byte in RAW).encode(),
}


@pytest.mark.parametrize("how", WRITTEN_DOWN)
def test_a_commit_may_not_hold_a_secret_however_it_is_written_down(how: str) -> None:
    redact, content = Redactor([VALUE]), WRITTEN_DOWN[how]
    assert redact.new_secrets(content) == ["the value of a secret variable"]
    assert redact.new_secrets(content + b"\nmore", before=content) == []
    assert redact.new_secrets(content[:15]) == []


def test_a_value_is_found_in_what_is_too_large_to_be_searched_for_patterns() -> None:
    redact = Redactor([VALUE])
    assert redact.holds_value(b"\0" * 100 + RAW) and redact.holds_value(base64.b64encode(RAW))
    assert not redact.holds_value(b"\0" * 100 + RAW[:10])


PHRASE = "correct horse+battery/staple"
KEY = "sk-ant-" + "a1" * 20


def test_a_value_is_redacted_in_every_usual_encoding() -> None:
    raw = PHRASE.encode()
    forms = [
        PHRASE, PHRASE[::-1], raw.hex(), raw.hex().upper(), raw.hex(":"), raw.hex(" "), "-".join(PHRASE),
        ", ".join(PHRASE),
        "".join(f"%{byte:02x}" for byte in raw), "".join(f"\\x{byte:02X}" for byte in raw),
        "correct%20horse%2Bbattery/staple", "correct%20horse%2Bbattery%2Fstaple",
    ]  # fmt: skip
    for form in forms:
        assert Redactor([PHRASE]).text(f"<{form}>") == f"<{MARK}>"
    assert MARK in Redactor([PHRASE]).text(base64.b32encode(raw).decode())


@given(st.binary(max_size=9), st.text(min_size=12, max_size=40), st.binary(max_size=9), st.booleans())
def test_a_value_is_redacted_in_base64_whatever_stands_around_it(
    before: bytes, value: str, after: bytes, urlsafe: bool
) -> None:
    try:
        whole = before + value.encode() + after
    except UnicodeEncodeError:
        return
    encoded = (base64.urlsafe_b64encode if urlsafe else base64.b64encode)(whole).decode()
    assert MARK in Redactor([value]).text(encoded)


def test_values_that_are_too_short_are_not_redacted() -> None:
    short, long = "s" * (SECRET_MIN_CHARS - 1), "l" * SECRET_MIN_CHARS
    assert Redactor([short, long]).text(f"{short} {long}") == f"{short} {MARK}"


def test_new_secrets_are_named_by_kind() -> None:
    redact = Redactor([PHRASE])
    assert redact.new_secrets(b"nothing") == []
    assert redact.new_secrets(f"a = {PHRASE}".encode()) == ["the value of a secret variable"]
    assert redact.new_secrets(KEY.encode()) == ["a key or token"]
    assert redact.new_secrets(f"{KEY} {PHRASE}".encode()) == ["the value of a secret variable", "a key or token"]
    assert Redactor().new_secrets(KEY.encode()) == ["a key or token"]


def test_a_secret_that_was_there_before_is_not_new_and_another_one_is() -> None:
    before = f"{KEY} {PHRASE}".encode()
    assert Redactor([PHRASE]).new_secrets(before + before, before) == []
    other = f"sk-ant-{'b2' * 20}".encode()
    assert Redactor([PHRASE]).new_secrets(before + b" " + other, before) == ["a key or token"]


def test_a_made_up_key_is_no_secret_and_with_examples_none_is_but_registered_values_are() -> None:
    assert Redactor().new_secrets(f"{KEY}example".encode()) == []
    assert Redactor().new_secrets(f"{KEY}example sk-{'b2' * 12}".encode()) == ["a key or token"]
    redact = Redactor([PHRASE])
    assert redact.new_secrets(f"{KEY} {PHRASE}".encode(), examples=True) == ["the value of a secret variable"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("secret", ["hunter2-hunter2", "ghp_" + "c" * 36])
def test_a_secret_in_wide_characters_is_new(encoding: str, secret: str) -> None:
    redact, content = Redactor(["hunter2-hunter2"]), f"key = {secret}".encode(encoding)
    assert len(redact.new_secrets(content)) == 1
    assert redact.new_secrets(content, content) == [] and redact.new_secrets("words".encode(encoding)) == []


@pytest.mark.parametrize("flood", ["-eyJ", "_eyJ", "sk-a ", "-----BEGIN PRIVATE KEY-----\n", "xoxb-", "eyJ.", "ghp_"])
def test_a_flood_of_what_begins_a_key_takes_time_by_its_length_only(flood: str) -> None:
    content = (flood * (400_000 // len(flood))).encode()
    began = time.process_time()
    Redactor(["hunter2-hunter2"]).log(content)
    Redactor().new_secrets(content)
    assert time.process_time() - began < 4  # a quadratic pattern takes minutes


def test_content_without_secrets_is_returned_as_it_is() -> None:
    for content in (b'{"a": [1, "b"]}', b"{broken", b"plain \xff", b'{"a":1}\n[2, 3]\n{broken'):
        assert Redactor([PHRASE]).document(content) == Redactor([PHRASE]).log(content) == content


def test_a_document_that_is_no_json_is_redacted_as_a_log() -> None:
    text = f'{{"a": "{PHRASE}"}}\n{{broken {PHRASE}\n["{PHRASE}", 1]\n'.encode()
    expected = f'{{"a":"{MARK}"}}\n{{broken {MARK}\n["{MARK}",1]\n'.encode()
    assert Redactor([PHRASE]).document(text) == Redactor([PHRASE]).log(text) == expected
