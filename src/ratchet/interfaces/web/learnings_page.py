"""The page of learnings: what is known, where it comes from, and whether it helps."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from ratchet.core import api
from ratchet.core.learning import TrialArm
from ratchet.core.learning_lift import Effect, Judged, Lift
from ratchet.interfaces.web import words
from ratchet.interfaces.web.site import Site

_SHOWN_MAX = 100
_TEXT_MAX_CHARS = 1_000
_ARMS = {
    TrialArm.PACKET: "Beside the failure",
    TrialArm.PROMPT: "In the role's prompt",
    TrialArm.PLACEBO: "Replaced by a placebo",
}


def learnings_values(site: Site, request: Request) -> dict[str, Any]:
    given = request.query_params
    text, retired = given.get("text", "").replace("\0", "")[:_TEXT_MAX_CHARS], bool(given.get("retired"))
    found = site.service.learnings(api.LearningsQuery(text=text, retired=retired, limit=_SHOWN_MAX))
    lift = site.service.learning_lift(api.LiftQuery())
    judged = {one.lift.name: one for one in lift.learnings}
    now = words.utc_now()
    return {
        "rows": [
            {"one": one, "age": words.age(one.created_at, now), "effect": _verdict(judged.get(one.id))}
            for one in found.learnings
        ],
        "text": text,
        "retired": retired,
        "lexical_only": found.lexical_only,
        "totals": [_total(one) for one in lift.totals if one.delivered],
        "proven": sum(one.proven for one in lift.learnings),
        "rate": f"{lift.false_discovery_rate:.0%}",
    }


def _verdict(one: Judged | None) -> str:
    if one is None:
        return "not delivered yet"
    saved = f", saves {one.lift.saved:.0%}" if one.lift.saved is not None else ""
    return f"{one.verdict}{saved} ({one.lift.delivered} delivered, {one.lift.held_out} held out)"


def _total(one: Lift) -> dict[str, Any]:
    effects = (one.attempts, one.repeats, one.reverts, one.cost_usd, one.green)
    return {"name": _ARMS[one.arm], "lift": one, "effects": [_change(effect) for effect in effects]}


def _change(effect: Effect | None) -> str:
    return f"{effect.difference:+.2f} ({effect.low:+.2f} to {effect.high:+.2f})" if effect else "too few"
