"""Writes the spec of a task from a commit's message and its linked issues, without traces of the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """An issue as `gh issue list --json number,title,body` prints it."""

    number: int
    title: str
    body: str = ""


WORDS_MIN = 4
_SAME_LINE_CHARS = 12  # a shorter line, such as `return x`, may be in the message by chance
_TRAILER = re.compile(
    r"^(?:[A-Z][\w-]+-[Bb]y|Reviewed-on|Cc|PR-URL|Differential Revision|git-svn-id):? \S|^[A-Z]\w*(?:-[A-Z]\w*)+: \S+$"
)
_PULL_REQUEST = re.compile(r"\s*\((?:#|gh-)\d+\)\s*$|^Merge pull request .*$|\s*\(?\bPR #\d+\)?", re.IGNORECASE)
_ANSWER_URL = re.compile(r"<?https?://\S+/(?:commits?|pull|compare|merge_requests|pull-requests|diff)s?/\S+")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b|\b[0-9a-f]{40}\b")
_PICKED = re.compile(r"^\(cherry picked from commit .*\)$|^This reverts commit .*$")
_DIFF = re.compile(r"^\s*(?:diff --git |@@ .*@@|\+\+\+ \S|--- [ab]/|index [0-9a-f]+\.\.)")
_FENCED_DIFF = re.compile(r"^(\s*(?:`{3,}|~{3,}))\s*(?:diff|patch)\b.*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CHORE = re.compile(r"^(?:bump|release|version|v?\d+\.\d+)\b", re.IGNORECASE)


def write_spec(message: str, issues: Sequence[Issue], answer: Iterable[str]) -> str:
    """Return the spec: title, message, linked issues. `answer` are the lines that the commit adds."""
    known = {" ".join(line.split()) for line in answer}
    known = {line for line in known if len(line) >= _SAME_LINE_CHARS}
    title, _, body = without_traces(message, known).strip().partition("\n")
    parts = [f"# {title.strip()}", body.strip()]
    for issue in issues:
        parts += [f"## Issue {issue.number}: {issue.title.strip()}", without_traces(issue.body, known).strip()]
    return "\n\n".join(part for part in parts if part) + "\n"


def without_traces(text: str, answer: set[str]) -> str:
    """Remove diffs, lines of the answer, commit ids, links to commits and pull requests, and trailers."""
    text = _FENCED_DIFF.sub("", text.replace("\r\n", "\n"))
    kept: list[str] = []
    in_diff = False
    for line in text.split("\n"):
        in_diff = bool(_DIFF.match(line)) or (in_diff and bool(line.strip()))
        plain = " ".join(line.split())
        if (
            in_diff
            or plain in answer
            or plain.lstrip("+-> ") in answer
            or _TRAILER.match(plain)
            or _PICKED.match(plain)
        ):
            continue
        kept.append(_HASH.sub("(commit)", _ANSWER_URL.sub("", _PULL_REQUEST.sub("", line))).rstrip())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept))


def linked_issues(message: str, issues: Iterable[Issue]) -> list[Issue]:
    """Return the issues whose number the message names."""
    named = {int(number) for number in re.findall(r"(?:#|\bgh-|/issues/)(\d+)\b", message, re.IGNORECASE)}
    return [issue for issue in issues if issue.number in named]


def is_vague(spec: str) -> bool:
    """Whether a spec cannot tell an agent what to do: a version, or fewer than four words."""
    text = spec.removeprefix("# ").strip()
    return len(re.findall(r"[^\W\d_]{2,}", text)) < WORDS_MIN or bool(_CHORE.match(text) and "\n" not in text)
