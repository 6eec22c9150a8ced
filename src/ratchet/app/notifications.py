"""Notifies chat systems of new inbox entries: by a command, by a webhook, or both.

The keys of sent entries are recorded for each channel: nothing is sent twice, and nothing is lost while the server or
the chat system is down.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from ratchet.checks.run.test_history import write_atomically
from ratchet.config import NotifyConfig
from ratchet.core.inbox import InboxEntry
from ratchet.core.learning import CONTROL_CHARACTERS
from ratchet.engine.blocking import run_blocking
from ratchet.errors import RatchetError
from ratchet.files import make_private_dir
from ratchet.paths import user_state
from ratchet.process.spawn import confined
from ratchet.process.supervise import supervise
from ratchet.tree_files import temporary_folder

EVERY_S, PAUSE_MAX_S, SEND_S = 3.0, 300.0, 30.0
LINES_MAX, CHARS_MAX = 10, 300
WEBHOOK_VARIABLE = "RATCHET_WEBHOOK"
log = logging.getLogger("ratchet.notifications")


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """`text` is for Slack and Mattermost, `content` for Discord; `entries` are for programs."""

    text: str
    content: str
    entries: list[InboxEntry]


Send = Callable[[Message], Awaitable[None]]


class NotSent(RatchetError):
    """A chat system did not take a message; it is sent again later."""


def message_of(entries: Sequence[InboxEntry], address: str) -> Message:
    lines = [_line(entry) for entry in entries[:LINES_MAX]]
    lines += [f"and {len(entries) - LINES_MAX} more"] if len(entries) > LINES_MAX else []
    text = "\n".join([*lines, f"{address}/inbox"])
    return Message(text=text, content=text, entries=list(entries))


def _line(entry: InboxEntry) -> str:
    where = entry.repo.rstrip("/").rpartition("/")[2]
    line = (
        f"{str(entry.kind).capitalize()}: {' '.join(entry.title.split())[:CHARS_MAX]}{f' ({where})' if where else ''}"
    )
    line = CONTROL_CHARACTERS.sub(" ", line)  # a variable cannot hold a NUL
    # Text of agents must not mention or link: `<!channel>` and `@here` are commands to chat systems.
    for sign, plain in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"), ("](", "]\u200b(")):
        line = line.replace(sign, plain)
    return line


class InboxNotifier:
    """Sends new entries to each channel until cancelled. `read` returns the visible entries."""

    def __init__(self, read: Callable[[], Sequence[InboxEntry]], address: str, channels: dict[str, Send], record: Path):
        self._read, self._address, self._channels, self._record = read, address, channels, record
        self._sent: dict[str, list[str]] = _load(record)
        self._pause_s = EVERY_S

    async def run(self) -> None:
        while True:
            try:
                await self.send_new()
                self._pause_s = EVERY_S
            except Exception as error:  # whatever it is, later entries are to be sent
                log.warning("cannot notify: %s", error, exc_info=not isinstance(error, (RatchetError, OSError)))
                self._pause_s = min(PAUSE_MAX_S, 2 * self._pause_s)
            await asyncio.sleep(self._pause_s)

    async def send_new(self) -> None:
        """Send one message with all new entries. Raises NotSent after all channels were tried."""
        entries = await run_blocking(self._read)
        failed: list[NotSent] = []
        for name, send in self._channels.items():
            sent = self._sent.get(name, [])
            new = [entry for entry in entries if entry.key not in sent]
            try:
                if new:
                    await send(message_of(new, self._address))
            except NotSent as error:
                failed.append(error)
                continue
            if (now := [entry.key for entry in entries]) != sent:
                self._sent[name] = now
                await run_blocking(write_atomically, self._record, msgspec.json.encode(self._sent))
        if failed:
            raise failed[0]


def _load(record: Path) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(record.read_bytes(), type=dict[str, list[str]])
    except (OSError, msgspec.MsgspecError):
        return {}


def open_notifier(
    settings: NotifyConfig, read: Callable[[], Sequence[InboxEntry]], *, address: str, store: str
) -> InboxNotifier | None:
    """Return a notifier as configured, or None."""
    channels: dict[str, Send] = {}
    if settings.command:
        channels["command"] = lambda message: run_command(settings.command, message)
    if webhook := settings.webhook or os.environ.get(WEBHOOK_VARIABLE, ""):
        channels["webhook"] = lambda message: run_blocking(post, webhook, message)
    if not channels:
        return None
    folder = make_private_dir(user_state() / "notifications")
    name = hashlib.sha256(json.dumps([store, settings.command, webhook]).encode()).hexdigest()[:16]
    return InboxNotifier(read, address, channels, folder / f"{name}.json")


async def run_command(command: str, message: Message) -> None:
    """Run the command with the message as JSON on its standard input, and its text in a variable. Raises NotSent."""
    env = dict(os.environ) | {"RATCHET_TEXT": message.text}
    with temporary_folder("ratchet-notify-") as place, confined(None):  # the user's own command
        output = Path(place) / "output.log"
        done = await supervise(
            ["sh", "-c", command],
            cwd=Path(place),
            env=env,
            output=output,
            stdin=msgspec.json.encode(message),
            timeout_s=SEND_S,
        )
        if done.exit_code != 0:
            printed = output.read_text("utf-8", "replace").strip()[-200:]
            raise NotSent(f"the command of notify.command ended with {done.exit_code}: {printed}")


def post(webhook: str, message: Message) -> None:
    """Send the message to a webhook. Raises NotSent; the address, which is often a secret, is in no error."""
    import urllib.error  # noqa: PLC0415 — slow to import, and most have no webhook
    import urllib.request  # noqa: PLC0415
    from http.client import HTTPException  # noqa: PLC0415

    if not webhook.startswith(("http://", "https://")):
        raise NotSent("notify.webhook is no http:// or https:// address")
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(webhook, msgspec.json.encode(message), headers)  # noqa: S310 — checked above
    try:
        with urllib.request.urlopen(request, timeout=SEND_S):  # noqa: S310 — see above
            pass
    except urllib.error.HTTPError as error:
        error.close()
        raise NotSent(f"the webhook answered {error.code}") from error
    except (OSError, ValueError, HTTPException) as error:
        raise NotSent(f"the webhook failed: {type(error).__name__}") from error
