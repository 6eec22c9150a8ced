"""Signs people in: one-time links, sessions that the server remembers, and CSRF tokens.

A cookie goes to whatever listens on the server's port, and while the server is not running that may be a program of
another user. So sessions live in this process only: what was sent elsewhere is worth nothing to the next server. On
this machine a session belongs to the user whose browser signed in.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

from ratchet.store.remote.local_users import UNKNOWN

LINK_S = 600.0
IDLE_S, LONGEST_S = 86_400.0, 7 * 86_400.0
LINKS_MAX, SESSIONS_MAX = 100, 1_000


class BrowserSession(NamedTuple):
    """A session or the link to one. `user` is the one of this machine it is for; empty: another machine's."""

    user: str
    idle_until_s: float
    ends_s: float


class Sessions:
    def __init__(self, token: str, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self._token, self._now_s = token.encode(), now_s
        self._links: dict[str, BrowserSession] = {}
        self._sessions: dict[str, BrowserSession] = {}

    # --- links -----------------------------------------------------------------------------------------------

    def make_link(self, user: str) -> str:
        """Return the path of a link that signs in once, within `LINK_S`.

        On this machine it is for the user who asked for it: all users can read it in a browser's command line.
        """
        now = self._now_s()
        self._links = {one: link for one, link in self._links.items() if link.ends_s > now}
        while len(self._links) >= LINKS_MAX:
            self._links.pop(next(iter(self._links)))
        key = secrets.token_urlsafe(24)
        self._links[_digest(key)] = BrowserSession(user, now + LINK_S, now + LINK_S)
        return f"/sign-in?key={key}"

    def use_link(self, key: str, user: str) -> bool:
        link = self._links.get(_digest(key))
        if link is None or user not in ("", UNKNOWN, link.user):
            return False
        del self._links[_digest(key)]
        return link.ends_s > self._now_s()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(self._token).digest())

    # --- sessions --------------------------------------------------------------------------------------------

    def open(self, user: str) -> str:
        """Return the cookie of a new session; `user` is the one of this machine whose browser it is, if any."""
        while len(self._sessions) >= SESSIONS_MAX:
            self._sessions.pop(next(iter(self._sessions)))
        cookie, now = secrets.token_urlsafe(32), self._now_s()
        self._sessions[_digest(cookie)] = BrowserSession(user, now + IDLE_S, now + LONGEST_S)
        return cookie

    def is_open(self, cookie: str, user: str) -> bool:
        found = self._sessions.get(_digest(cookie))
        return found is not None and found.user == user and self._now_s() < min(found.idle_until_s, found.ends_s)

    def use(self, cookie: str, user: str) -> bool:
        """Whether the session is open; it then stays so for another `IDLE_S`."""
        if not self.is_open(cookie, user):
            return False
        session = self._sessions.pop(_digest(cookie))
        self._sessions[_digest(cookie)] = session._replace(idle_until_s=self._now_s() + IDLE_S)
        return True

    def end(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)

    def csrf(self, cookie: str) -> str:
        return self._sign("csrf", cookie)

    def is_csrf(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.csrf(cookie).encode())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._token, f"ratchet {purpose} {text}".encode(), hashlib.sha256).hexdigest()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()
