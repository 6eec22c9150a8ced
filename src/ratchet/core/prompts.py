"""Prompt templates: placeholders are filled with facts of the run, and empty sections are omitted."""

from __future__ import annotations

import re
from string import Template

import msgspec

# All valid placeholders.
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
        "may_write",
        "sealed",
        "spec",
        "spec_path",
        "task",
        "test_commands",
        "test_paths",
        "title",
        "verify",
    }
)
CHARS_A_TOKEN = 4
_SECTION = re.compile(r"^(?=# )", re.MULTILINE)
_ENTRY = re.compile(r"^(?=## step \d+: )", re.MULTILINE)


def placeholders_in(template: str) -> set[str]:
    return set(Template(template).get_identifiers())


def template_error(template: str) -> str:
    """Return what is wrong with a template, or ''."""
    made = Template(template)
    if not made.is_valid():
        return "a $ that names nothing: write $$ for the sign itself"
    unknown = sorted(set(made.get_identifiers()) - PLACEHOLDERS)
    return f"unknown placeholder ${', $'.join(unknown)}: known are {', '.join(sorted(PLACEHOLDERS))}" if unknown else ""


def render(template: str, facts: dict[str, str]) -> str:
    """Fill in a template section by section (`# Heading`); omit sections whose placeholders are all empty."""
    sections = [_fill(section, facts) for section in _SECTION.split(template) if section.strip()]
    return "\n\n".join(text for text in sections if text) + "\n"


# Facts that may be shortened, least important first. The spec is never shortened.
_SHRINK_ORDER = ("history", "learnings", "commits", "diff", "feedback", "findings", "failures")


def fit_to_tokens(template: str, facts: dict[str, str], tokens: int) -> dict[str, str]:
    """Shorten facts until the prompt fits; each keeps its beginning."""
    facts = dict(facts)
    for name in _SHRINK_ORDER:
        over = len(render(template, facts)) - tokens * CHARS_A_TOKEN
        if over > 0 and name in placeholders_in(template) and facts[name]:
            kept = facts[name][: max(0, len(facts[name]) - over - len(_CUT))]
            facts[name] = f"{kept}{_CUT}" if kept else ""
    return facts


_CUT = "\n… (shortened)"


def _fill(section: str, facts: dict[str, str]) -> str:
    names = placeholders_in(section)
    if names and not any(facts[name].strip() for name in names):
        return ""
    return Template(section).substitute({name: facts[name].strip() for name in names}).strip()


def recent_entries(history: str, tokens: int) -> str:
    """Return the last whole entries that fit; of a single entry that is too long, its beginning."""
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
    """Return an answer as a section of the history in later prompts."""
    return f"## step {step}: {role}\n\n{text.strip() or '(no answer)'}\n\n"


def answer_of(entry: str) -> str:
    """Return the answer in a section that `history_entry` made."""
    return _ENTRY_HEAD.sub("", entry, count=1).strip()


_ENTRY_HEAD = re.compile(r"\A## step \d+: .*\n")


def finding_text(finding: msgspec.Struct) -> str:
    return msgspec.json.encode(finding).decode()
