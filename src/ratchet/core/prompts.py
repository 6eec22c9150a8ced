"""What each role is asked: a template, with what the run knows put in. A section with nothing to say is left out."""

from __future__ import annotations

import re
from string import Template

import msgspec

# What a template may name. Everything else is a mistake in it.
PLACEHOLDERS = frozenset(
    {
        "commits",
        "diff",
        "failures",
        "feedback",
        "findings",
        "finished",
        "hint",
        "history",
        "learnings",
        "spec",
        "spec_path",
        "task",
        "title",
        "verify",
    }
)
CHARS_A_TOKEN = 4
_SECTION = re.compile(r"^(?=# )", re.MULTILINE)
_ENTRY = re.compile(r"^(?=## step \d+: )", re.MULTILINE)


def names_in(template: str) -> set[str]:
    return set(Template(template).get_identifiers())


def wrong_with(template: str) -> str:
    """What cannot be filled in; empty for a good template."""
    made = Template(template)
    if not made.is_valid():
        return "a $ that names nothing: write $$ for the sign itself"
    unknown = sorted(set(made.get_identifiers()) - PLACEHOLDERS)
    return f"unknown placeholder ${', $'.join(unknown)}: known are {', '.join(sorted(PLACEHOLDERS))}" if unknown else ""


def render(template: str, facts: dict[str, str]) -> str:
    """Filled in section by section (`# Heading`): one whose placeholders are all empty is left out."""
    told = [_filled(section, facts) for section in _SECTION.split(template) if section.strip()]
    return "\n\n".join(text for text in told if text) + "\n"


# What a prompt can do without, the least needed first. The spec is never shortened.
_SPARED = ("history", "learnings", "commits", "diff", "feedback", "findings", "failures")


def fitted(template: str, facts: dict[str, str], tokens: int) -> dict[str, str]:
    """The same facts, shortened until the prompt fits; of each its beginning stays."""
    facts = dict(facts)
    for name in _SPARED:
        over = len(render(template, facts)) - tokens * CHARS_A_TOKEN
        if over > 0 and name in names_in(template) and facts[name]:
            kept = facts[name][: max(0, len(facts[name]) - over - len(_CUT))]
            facts[name] = f"{kept}{_CUT}" if kept else ""
    return facts


_CUT = "\n… (shortened)"


def _filled(section: str, facts: dict[str, str]) -> str:
    names = names_in(section)
    if names and not any(facts[name].strip() for name in names):
        return ""
    return Template(section).substitute({name: facts[name].strip() for name in names}).strip()


def recent(history: str, tokens: int) -> str:
    """The last entries that fit, whole; of one that is too long itself, its beginning."""
    room, kept = tokens * CHARS_A_TOKEN, []
    for entry in reversed([entry for entry in _ENTRY.split(history) if entry.strip()]):
        if len(entry) > room:
            break
        kept.append(entry)
        room -= len(entry)
    if not kept and history.strip():
        return f"{_ENTRY.split(history)[-1][:room]}…"
    return "".join(reversed(kept))


def history_entry(step: int, role: str, text: str) -> str:
    """One section of `history.md`, which the next roles get to read."""
    return f"## step {step}: {role}\n\n{text.strip() or '(said nothing)'}\n\n"


def finding_text(finding: msgspec.Struct) -> str:
    return msgspec.json.encode(finding).decode()
