"""Parses verdicts in agents' answers. A missing or malformed verdict is a failure, never an approval."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from ratchet.core.foreign_json import MALFORMED
from ratchet.core.lines import split_lines

COMPLETE = "REQUIREMENTS_COMPLETE"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class ReviewFinding(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    line: int = 0
    severity: Severity = Severity.WARNING
    issue: str
    suggestion: str = ""


class Decision(StrEnum):
    APPROVED = "approved"
    CHANGES_REQUESTED = "changes_requested"


class Review(msgspec.Struct, frozen=True, kw_only=True):
    verdict: Decision
    summary: str = ""
    findings: list[ReviewFinding] = []


def requirements_complete(text: str) -> bool:
    """The token must stand alone on a line: a sentence that mentions it is not a verdict."""
    return any(line.strip() == COMPLETE for line in split_lines(text))


_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)


def parse_review(text: str) -> Review | str:
    """Parse the last JSON object in the reviewer's answer; return the review, or why it is invalid."""
    candidates = [*_FENCED.findall(text), text[text.find("{") : text.rfind("}") + 1]]
    why = "the answer holds no JSON verdict"
    for candidate in reversed([c for c in candidates if c.strip()]):
        try:
            review = msgspec.json.decode(candidate, type=Review)
        except MALFORMED as error:
            why = f"the verdict is not valid: {error}"
            continue
        if review.verdict is Decision.CHANGES_REQUESTED and not review.findings:
            return "changes were requested without saying which"
        return review
    return why
