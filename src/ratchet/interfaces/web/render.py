"""Renders templates: autoescaped, with the icons and words of the pages, under a strict Content-Security-Policy."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from ratchet.interfaces.web import words
from ratchet.interfaces.web.ratchet_svg import card, step_result

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
STATIC = Path(__file__).parent / "static"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ratchet.interfaces.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "money": words.money,
        "duration": words.duration,
        "clock": words.clock,
        "agent": words.agent_name,
        "repo": words.repo_name,
        "phase": words.phase,
        "cut": words.cut,
        "coded": coded,
    }
    made.globals |= {
        "icon": icon,
        "count": words.count,
        "card_picture": card,
        "step_result": step_result,
        "age": words.age,
    }
    made.globals |= {"wakes": words.wakes}
    return made


def icon(name: str, tone: str = "") -> Markup:
    """Return a drawn icon of the sprite. Names and tones come from templates and code, never from data."""
    return Markup('<svg class="i{}" aria-hidden="true"><use href="#{}"/></svg>').format(
        f" {tone}" if tone else "", name
    )


def coded(text: str) -> Markup:
    """Mark what stands between backticks as code."""
    parts = enumerate(text.split("`"))
    return Markup("").join(Markup("<code>{}</code>" if place % 2 else "{}").format(part) for place, part in parts)


def page(template: str, *, status: int = 200, **values: object) -> Response:
    text = _environment().get_template(template).render(**values)
    return HTMLResponse(text, status, HEADERS)
