"""Keys of the live screens, pressed on a real terminal."""

from __future__ import annotations

import os
import pty
import select
import shlex
import termios
import time
import tty
from pathlib import Path

from ratchet.interfaces.terminal.keys import wait_for_key
from tests.app.watch.support import small
from tests.support import RATCHET, quick_environment

PATIENCE_S = 60


class Terminal:
    """A command as the foreground job of a terminal of its own, 80 columns by 24 rows."""

    def __init__(self, *command: str, cwd: Path) -> None:
        self.printed = ""
        env = quick_environment() | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.chdir(cwd)
            os.execvpe(command[0], command, env)

    def until(self, words: str) -> None:
        """Wait until words are printed after those that were waited for before."""
        end_s = time.monotonic() + PATIENCE_S
        while words not in self.printed:
            assert select.select([self.fd], [], [], end_s - time.monotonic())[0], self.printed
            self.printed += os.read(self.fd, 1 << 16).decode(errors="replace")
        self.printed = self.printed.partition(words)[2]

    def press(self, key: str) -> None:
        os.write(self.fd, key.encode())

    def exit_code(self) -> int:
        while True:  # what is still printed must be read for the program to end
            try:
                os.read(self.fd, 1 << 16)
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_watch_takes_keys_and_names_them(tmp_path: Path) -> None:
    terminal = Terminal(*RATCHET, "watch", cwd=small(tmp_path))
    terminal.until("GREEN")
    terminal.until("a all · f failed · Enter run · q quit")
    for key in ("a", "\n", "x"):
        terminal.press(key)
    terminal.until("PENDING")
    terminal.until("GREEN")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_a_manual_watch_runs_on_enter(tmp_path: Path) -> None:
    terminal = Terminal(*RATCHET, "watch", "--on", "manual", cwd=small(tmp_path))
    terminal.until("GREEN")
    terminal.press("\r")
    terminal.until("PENDING")
    terminal.until("GREEN")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_a_watch_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    terminal = Terminal("sh", "-c", f"{shlex.join(RATCHET)} watch; stty -a", cwd=small(tmp_path))
    terminal.until("q quit")
    assert not termios.tcgetattr(terminal.fd)[3] & termios.ICANON
    terminal.press("q")
    terminal.until(" icanon")
    terminal.until(" echo")
    assert terminal.exit_code() == 0


def test_a_wait_for_a_key_ends_with_that_key_or_its_time() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stream, os.fdopen(ours, "wb", buffering=0) as keyboard:
        tty.setcbreak(theirs)
        keyboard.write(b"xQ")
        assert wait_for_key(stream, "q", timeout_s=PATIENCE_S)
        assert not wait_for_key(stream, "q", timeout_s=0.01)


def test_a_terminal_that_does_not_control_the_session_is_shown_without_keys(tmp_path: Path) -> None:
    """As under `su -c`: its foreground group cannot be asked for."""
    terminal = Terminal("setsid", "--wait", *RATCHET, "top", "--once", cwd=tmp_path)
    terminal.until("The queue is empty")
    assert terminal.exit_code() == 0
