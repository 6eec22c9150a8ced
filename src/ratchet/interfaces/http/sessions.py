"""Signs people in: one-time links, signed cookies, and CSRF tokens. Nothing is stored but links that were not used yet.

Everything is derived from the server's token, so that a session survives a restart and ends when the token changes.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

LINK_S = 600.0
SESSION_S = 30 * 86_400
LINKS_MAX = 100


class Sessions:
    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._links: dict[str, float] = {}

    # --- links -----------------------------------------------------------------------------------------------

    def make_link(self) -> str:
        """Return the path of a link that signs in once, within `LINK_S`."""
        now = time.monotonic()
        self._links = {one: due for one, due in self._links.items() if due > now}
        while len(self._links) >= LINKS_MAX:
            self._links.pop(next(iter(self._links)))
        key = secrets.token_urlsafe(24)
        self._links[_digest(key)] = now + LINK_S
        return f"/sign-in?key={key}"

    def use_link(self, key: str) -> bool:
        due = self._links.pop(_digest(key), 0.0)
        return due > time.monotonic()

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(given.encode()).digest(), hashlib.sha256(self._token).digest())

    # --- cookies ---------------------------------------------------------------------------------------------

    def make_cookie(self) -> str:
        text = f"{int(time.time()) + SESSION_S}.{secrets.token_urlsafe(16)}"
        return f"{text}.{self._sign('session', text)}"

    def is_valid(self, cookie: str) -> bool:
        text, _, signature = cookie.rpartition(".")
        if not text or not hmac.compare_digest(signature.encode(), self._sign("session", text).encode()):
            return False
        until = text.partition(".")[0]
        return until.isdecimal() and int(until) > time.time()

    def csrf(self, cookie: str) -> str:
        return self._sign("csrf", cookie)

    def is_csrf(self, cookie: str, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.csrf(cookie).encode())

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._token, f"ratchet {purpose} {text}".encode(), hashlib.sha256).hexdigest()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
