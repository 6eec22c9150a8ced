"""What agents and tests have written cannot steer the terminal of a person who looks at it."""

from __future__ import annotations

import io

import pytest

from ratchet.interfaces.cli.common import print_data
from ratchet.interfaces.terminal.printable import printable


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


HOSTILE = {
    "the title": "\x1b]0;title\x07",
    "the clipboard": "\x1b]52;c;AAAA\x1b\\",
    "the screen": "\x1b[2J\x1b[H",
    "an 8-bit terminal": "\x9b2J",
    "a line again": "failed\rpassed",
    "the order of letters": "\u202eevil\u2066",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_terminal_gets_no_control_but_colours_and_lines(monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    print_data(f"\x1b[31mred\x1b[0m\tand\n{HOSTILE[what]}")
    shown = terminal.getvalue()
    assert shown.startswith("\x1b[31mred\x1b[0m\tand\n")
    rest = shown.split("\n", 1)[1].rstrip("\n")
    assert rest and rest.isprintable()


def test_a_pipe_gets_every_byte() -> None:
    assert printable("\x1b[2J\r\n", io.StringIO()) == "\x1b[2J\r\n"
