"""Learnings: lessons with their provenance, found again by the failure they are about, their words or their meaning."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

import msgspec

from ratchet.core.lines import split_lines
from ratchet.core.report import RED, Report, load_errors

CONTENT_MAX_CHARS = 10_000
WORDS_MAX = 40
INDEXED_WORDS_MAX = 600
FINGERPRINTS_MAX = 5
NEAR_IDENTICAL = 0.85
# What PostgreSQL cannot store or a terminal would execute. Line breaks and tabs are text.
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Chosen on one half of the pairs of `bench/learnings.py`, and better on the other half too: the first ranks count more
# than in the paper that introduced the fusion (60), and meaning twice as much as words, which error texts rarely share.
_RANK_K = 10
WORDS_WEIGHT, MEANING_WEIGHT = 1.0, 2.0
_LIFT_WEIGHT_MAX = 0.5


class LearningKind(StrEnum):
    """`candidate`: reported by an agent and not yet confirmed by a second run."""

    LESSON = "lesson"
    DEAD_END = "dead_end"
    CANDIDATE = "candidate"


class LearningSource(StrEnum):
    FACTORY = "factory"
    AGENT = "agent"
    PERSON = "person"


class TrialArm(StrEnum):
    """Where a learning went: beside the failure, into the role's prompt, replaced by a placebo, or nowhere."""

    PACKET = "packet"
    PROMPT = "prompt"
    PLACEBO = "placebo"
    HELD_OUT = "held_out"


class Matched(StrEnum):
    """How a learning was found: by the failure's fingerprint, a search for its text, or the item's title."""

    FINGERPRINT = "fingerprint"
    SEARCH = "search"
    TITLE = "title"


class LearningTrial(msgspec.Struct, frozen=True, kw_only=True):
    """What followed the first delivery of a learning for one failure, until that was green or given up."""

    learning: str
    run: str
    seq: int
    arm: TrialArm
    attempts: int = 0
    repeats: int = 0
    reverts: int = 0
    cost_usd: float = 0.0
    green: bool = False
    at: str = ""


MEASURES = ("attempts", "repeats", "reverts", "cost_usd")


class TrialSums(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of a learning in one arm: sums of each measure and of its squares."""

    learning: str
    source: LearningSource
    content: str
    arm: TrialArm
    retired: bool
    trials: int
    green: int
    sums: dict[str, float]
    squares: dict[str, float]


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """`run` and `seq` name the ledger row it comes from, `fingerprints` the failures it is about. Without `repo` it
    applies everywhere. A retired or merged learning is kept but no longer found. `seen` counts the runs that produced
    it; `lift` is its proven effect, as the share of attempts that it saves."""

    id: str
    repo: str
    content: str
    spec: str = ""
    tags: list[str] = []
    run: str = ""
    seq: int = 0
    created_at: str
    retired_at: str = ""
    kind: LearningKind = LearningKind.LESSON
    source: LearningSource = LearningSource.PERSON
    commit: str = ""
    fingerprints: list[str] = []
    merged_into: str = ""
    retired_by: str = ""
    retired_why: str = ""
    seen: int = 1
    lift: float | None = None


class LearningVector(msgspec.Struct, frozen=True, kw_only=True):
    """The embedding of a learning's content."""

    learning: str
    vector: list[float]


def learning_id(repo: str, content: str) -> str:
    """Return an id that is the same for the same content in the same repository."""
    return "learning-" + hashlib.sha256(f"{repo}\0{content}".encode()).hexdigest()[:16]


def content_error(content: str) -> str:
    """Return why this cannot be a learning, or ''."""
    if not content.strip():
        return "the content is empty"
    if len(content) > CONTENT_MAX_CHARS:
        return f"the content has {len(content):,} characters, more than {CONTENT_MAX_CHARS:,}"
    return control_character("content", content)


def learning_error(learning: Learning) -> str:
    """Return why this cannot be stored, or ''."""
    if "\0" in learning.repo:  # all else may be in the name of a folder
        return "the repository has a NUL character"
    if not 0 <= learning.seq < 2**63:
        return f"{learning.seq} is no number of a ledger entry"
    texts = {"id": learning.id, "spec": learning.spec, "run": learning.run, "commit": learning.commit,
                "time": learning.created_at}  # fmt: skip
    named = [*texts.items(), *(("tag", tag) for tag in learning.tags)]
    found = [content_error(learning.content), *(control_character(name, text) for name, text in named)]
    return next(filter(None, found), "")


def control_character(name: str, text: str) -> str:
    """Return that a text has a control character, and where; or ''."""
    found = CONTROL_CHARACTERS.search(text)
    return f"the {name} has a control character (U+{ord(found[0]):04X} at {found.start()})" if found else ""


# --- words ------------------------------------------------------------------------------------------------------

# Words of every sentence, and of every error text.
_FUNCTION_WORDS = frozenset(
    """
a after all an and any are as at be because been before but by can could did do does each every for from had has have
he here if in into is it its no not of on one only or other same she so than that the their them then there they this to
two was we were what when which who will with would you your
error errors expected fail failed failure got test tests
""".split()  # noqa: SIM905 — a list would take many lines
)
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; names in camel case are one word and also their parts."""
    found: list[str] = []
    for word in _WORD.findall(text):
        found.append(word.lower())
        parts = _HUMP.findall(word) if word.isascii() else []
        found += [part.lower() for part in parts if len(parts) > 1 and len(part) > 1]
    return found


def search_terms(query: str) -> list[str]:
    """Return the distinct words of a query without those that every sentence has; operators of the text index are
    dropped."""
    words = list(dict.fromkeys(words_of(query)))
    return [word for word in words if word not in _FUNCTION_WORDS] or words


def index_words(learning: Learning) -> tuple[str, str]:
    """Return the words of content and tags as the text index gets them."""
    return " ".join(words_of(learning.content)[:INDEXED_WORDS_MAX]), " ".join(words_of(" ".join(learning.tags)))


def are_near_identical(one: str, other: str) -> bool:
    """Whether two contents differ only in few words; numbers count as words."""
    left, right = set(words_of(one)), set(words_of(other))
    return len(left & right) >= NEAR_IDENTICAL * len(left | right) if left or right else one == other


# --- ranking ----------------------------------------------------------------------------------------------------


def fuse(rankings: Iterable[tuple[float, Sequence[str]]]) -> dict[str, float]:
    """Return a score for each id by weighted reciprocal rank fusion: what several rankings place high comes first."""
    scores: dict[str, float] = {}
    for weight, ranking in rankings:
        for rank, each in enumerate(ranking):
            scores[each] = scores.get(each, 0.0) + weight / (_RANK_K + rank)
    return scores


def lift_factor(lift: float | None) -> float:
    """Return by how much a proven effect moves a learning up or down in a ranking."""
    return 1.0 + max(-_LIFT_WEIGHT_MAX, min(_LIFT_WEIGHT_MAX, lift or 0.0))


# --- delivery ---------------------------------------------------------------------------------------------------

PLACEBO = "Look at the failure and the code around it, and take the time that it needs."


def assign_arm(run: str, failure: str, learning: str, *, held_out: float, placebo: float, prompt: float) -> TrialArm:
    """Return the arm of a learning for a failure of a run, always the same one. The shares are of all assignments."""
    digest = hashlib.sha256(f"{run}\0{failure}\0{learning}".encode()).digest()
    drawn = int.from_bytes(digest[:8]) / 2**64
    for arm, share in ((TrialArm.HELD_OUT, held_out), (TrialArm.PLACEBO, placebo), (TrialArm.PROMPT, prompt)):
        if drawn < share:
            return arm
        drawn -= share
    return TrialArm.PACKET


def delivered_text(learning: Learning) -> str:
    """Return a learning as an agent reads it."""
    heads = {LearningKind.DEAD_END: "Dead end: ", LearningKind.CANDIDATE: "Unconfirmed: "}
    return heads.get(learning.kind, "") + "\n  ".join(split_lines(learning.content.strip()))


# --- failures ---------------------------------------------------------------------------------------------------

_VARIABLE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@+-]+){2,}"), "PATH"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b[0-9a-f]{12,64}\b"), "ID"),
    (re.compile(r"\d+"), "0"),
    (re.compile(r"\s+"), " "),
)


def failure_fingerprint(kind: str, message: str, file: str) -> str:
    """Return a name for a failure that is the same in every run: its type, the first line of its message without
    numbers, addresses and paths, and the file of the test."""
    line = split_lines(message.strip())[0] if message.strip() else ""
    for pattern, plain in _VARIABLE:
        line = pattern.sub(plain, line)
    return hashlib.sha256(f"{kind}\0{line[:300]}\0{file}".encode()).hexdigest()[:16]


_TELLING_WORDS = 3


def report_fingerprints(report: Report, names: Collection[str]) -> list[str]:
    """Return the fingerprints of these tests' failures, and of files that do not load, each once.

    A specific message has a second fingerprint without the file, so that it matches in every file.
    """
    rows = [(failure.type, failure.message, test.file, failure.actual is None)
            for test in report.tests
            if test.id in names or test.file in names
            for failure in [test.failure]
            if failure and test.status in RED]  # fmt: skip
    rows += [(error.type, error.message, error.file, True) for error in load_errors(report)]
    found = [failure_fingerprint(kind, message, file) for kind, message, file, _ in rows]
    specific = [(kind, message) for kind, message, _, is_error in rows if is_error and _is_specific(kind, message)]
    return list(dict.fromkeys([*found, *(failure_fingerprint(kind, message, "") for kind, message in specific)]))


def _is_specific(kind: str, message: str) -> bool:
    words = re.findall(r"[A-Za-z]{3,}", message.strip().partition("\n")[0])
    return "assert" not in f"{kind} {message}".lower() and len(words) >= _TELLING_WORDS
