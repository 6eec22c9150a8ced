"""Ends a process that lost its lease but lives on, so that it cannot wake up and write where its successor works."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from ratchet.core.lease import Holder
from ratchet.process.reaper import descendants
from ratchet.process.spawn import is_gone, process_holder, this_machine

END_S = 10.0
_PAUSE_S = 0.005


def end_former_owner(holder: Holder) -> bool:
    """Kill the process and its descendants and wait for their end. False when it may be alive and cannot be killed."""
    if is_gone(holder) or holder.pid == os.getpid() or ended_with_its_boot(holder):
        return True
    if holder.machine != this_machine():
        return False  # in another container, or on another machine
    try:
        tree = _stop_tree(holder)
    except PermissionError:
        return False
    if tree is None:
        return False
    for one in tree:
        _send(one, signal.SIGKILL)
    return _wait(lambda: all(is_gone(one) for one in tree))


def ended_with_its_boot(holder: Holder) -> bool:
    """Whether the holder ran on this host before it was started anew."""
    boot, _, _ = this_machine().partition(":")
    here = holder.worker.rpartition(":")[0] == socket.gethostname()
    return here and holder.machine.partition(":")[0] != boot


def _stop_tree(holder: Holder) -> list[Holder] | None:
    """Stop the process and all its descendants, so that none can fork. None when this process is among them."""
    tree = [holder]
    _send(holder, signal.SIGSTOP)
    while True:
        known = {one.pid for one in tree}
        new = [process_holder(pid) for pid in descendants(holder.pid) if pid not in known]
        if any(one.pid == os.getpid() for one in new):
            _send(holder, signal.SIGCONT)
            return None
        if not new:
            return tree
        for one in new:
            _send(one, signal.SIGSTOP)
        tree += new


def _send(holder: Holder, number: signal.Signals) -> None:
    if not is_gone(holder):
        with suppress(ProcessLookupError):
            os.kill(holder.pid, number)


def _wait(ended: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + END_S
    while not ended():
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE_S)
    return True
