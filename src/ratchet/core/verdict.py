"""What an agent's last words mean. A missing or malformed verdict is a failure, never a yes."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

COMPLETE = "REQUIREMENTS_COMPLETE"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
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
    findings: list[Finding] = []


def requirements_complete(text: str) -> bool:
    """The token must stand alone on a line: a sentence that mentions it is not a verdict."""
    return any(line.strip() == COMPLETE for line in text.splitlines())


_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n\s*```", re.DOTALL)


def read_review(text: str) -> Review | str:
    """The last JSON object in the reviewer's answer as a Review, or why it is not one."""
    candidates = [*_FENCED.findall(text), text[text.find("{") : text.rfind("}") + 1]]
    why = "the answer holds no JSON verdict"
    for candidate in reversed([c for c in candidates if c.strip()]):
        try:
            review = msgspec.json.decode(candidate, type=Review)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            why = f"the verdict is not valid: {error}"
            continue
        if review.verdict is Decision.CHANGES_REQUESTED and not review.findings:
            return "changes were requested without saying which"
        return review
    return why
