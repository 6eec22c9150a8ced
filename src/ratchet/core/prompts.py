"""What each role is asked, as plain text: the spec, the rules of the role, what went before, the failures as data."""

from __future__ import annotations

import msgspec

from ratchet.core.roles import Role
from ratchet.core.verdict import COMPLETE
from ratchet.core.workflow import Step

_HISTORY_CHARS = 8_000

_RULES = {
    "audit": f"""You are the auditor. Read the spec and the code. Write exactly one new test for one requirement that is
not met yet. The test must fail now, because of the missing behaviour and nothing else. Write test files only;
any other change is undone. If every requirement is met and tested, write no test and answer with a line that says
{COMPLETE} and nothing else.""",
    "implement": """You are the implementer. Make the failing tests below pass with the simplest honest change. Write
source files only; changes to tests or to the test configuration are undone. The factory runs the tests itself: green
is committed, red is reverted.""",
    "implement_changes": """You are the implementer. The reviewer wants the changes below. Make them in the source
files only; every test must stay green, or your change is reverted.""",
    "refactor": """You are the architect. Improve the structure of the source without changing its behaviour. Change no
tests. Every test must stay green, or your change is reverted. If nothing is worth changing, change nothing.""",
    "review": """You are the reviewer. Judge whether the commits below meet the spec honestly and well. Change no file.
Answer with one JSON object: {"verdict": "approved" | "changes_requested", "summary": "…", "findings": [{"file": "…",
"line": 1, "severity": "error" | "warning" | "info", "issue": "…", "suggestion": "…"}]}.""",
}


def prompt(step: Step, *, spec: str, failures: str = "", history: str = "", diff: str = "") -> str:
    sections = {
        "Your task": _RULES[step.action],
        "Spec": spec,
        "Failing tests": failures,
        "Findings of the reviewer": "\n".join(f"- {finding}" for finding in step.inputs.get("findings", [])),
        "Why your earlier tries did not count": "\n".join(f"- {why}" for why in step.inputs.get("feedback", [])),
        "The change so far": diff,
        "What the others said": history[-_HISTORY_CHARS:],
    }
    return "\n\n".join(f"# {name}\n{text.strip()}" for name, text in sections.items() if text.strip()) + "\n"


def history_entry(step: int, role: Role, text: str) -> str:
    """One section of `history.md`, which the next roles get to read."""
    return f"## step {step}: {role}\n\n{text.strip() or '(said nothing)'}\n\n"


def finding_text(finding: msgspec.Struct) -> str:
    return msgspec.json.encode(finding).decode()
