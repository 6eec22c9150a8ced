"""Finds hardcoded answers: literals that occur together in a test and together in new source, in any language.

A unit is a statement, or a condition with the code after it. A table with more entries than the tests use, or one that
the spec describes, is data.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import combinations

import msgspec

from ratchet.core.cheats.findings import LINE_MAX, Change, Cheat, shorten
from ratchet.core.lines import split_lines

_LITERAL = re.compile(
    r"""(?<![\w.])-?(?:0[xX][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][-+]?\d+)?)|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|`(?P<back>[^`\n]*)`"""
)
_COMMENT = re.compile(r"^\s*(?://|\*|/\*|#(?![\[!])|--\s)")
_TRIVIAL = {"0", "1", "-1", "2", "", " ", "\n", "\\n", ",", "utf-8", "utf8"}
_BRANCH = re.compile(
    r"\b(?:if|elif|elsif|unless|case|when|match|switch)\b|={2,3}|\.equals\(|\?|=>|->|\bdo:|\.(?:startswith|startsWith|starts_with)\("
)
_OPENS = re.compile(
    r"(?:\bif\b|\belif\b|\belsif\b|\bcase\b|\bwhen\b).*(?:[{:]|\bthen|\))\s*$|=>\s*\{?\s*$|->\s*\{?\s*$"
)
_DATA = (".json", ".yaml", ".yml", ".csv", ".tsv", ".txt", ".toml", ".ini")
_CODE = re.compile(
    r"\.(?:pyi?|[cm]?[jt]sx?|vue|svelte|go|rs|java|kt|kts|groovy|scala|cs|fs|rb|php|exs?|erl|swift|c|cc|cpp|cxx|h|hpp|m|zig|d|ml|hs|lua|pl|pm|r|R|jl|dart|nim|sh)$"
)
_ALL_PAIRS = 8  # literals of a unit; of longer units only those close to each other
_WINDOW = 3
_JOINED = 12  # lines of a statement
_CLOSE = 4  # lines between units of one table


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    line: int
    literals: tuple[str, ...]
    branch: bool = False
    is_message: bool = False  # it is the text of an error or a message

    def pairs(self) -> Iterator[frozenset[str]]:
        words = self.literals
        if len(words) <= _ALL_PAIRS:
            yield from (frozenset(pair) for pair in combinations(words, 2) if pair[0] != pair[1])
            return
        for at, word in enumerate(words):
            yield from (frozenset((word, other)) for other in words[at + 1 : at + 1 + _WINDOW] if other != word)


def find(changes: Sequence[Change], tests: Iterable[tuple[str, str]], spec: str) -> list[Cheat]:
    asked = _Asked([list(_units(text, None)) for _, text in tests], spec)
    if not asked.words:
        return []
    return [
        cheat
        for change in changes
        if change.after and (_CODE.search(change.path) or (change.before is None and change.path.endswith(_DATA)))
        for cheat in _in_source(change, asked)
    ]


class _Asked:
    """The literals that tests write together, without those that the spec writes too."""

    def __init__(self, files: list[list[Unit]], spec: str) -> None:
        self.spec = spec
        units = [unit for file in files for unit in file]
        self.answers = [[unit.literals[at] for unit in file] for file in files for at in (0, -1)]
        self.pairs = {pair for unit in units for pair in unit.pairs() if not self._is_trivial(pair)}
        self.words = {word for unit in units for word in unit.literals}
        self.bare = {_bare(word) for word in self.words if _is_rare(word.replace(" ", ""))}
        self.lower = {word.lower() for word in self.words}
        self.phrases = {word for word in self.words if _is_phrase(word)}
        self.rows = {unit.literals for unit in units if len(unit.literals) >= _SEQUENCE}
        self.texts = [word for word in self.words if len(word) > _SEQUENCE and not _is_number(word)]
        self.by_text: dict[str, set[str]] = {}
        for unit in units:
            for word in unit.literals:
                if len(word) > _SEQUENCE and not _is_number(word):
                    self.by_text.setdefault(word, set()).update(unit.literals)

    def _is_trivial(self, pair: frozenset[str]) -> bool:
        if any(word in _TRIVIAL or (len(word) < 2 and not _is_number(word)) for word in pair):
            return True
        named = [word for word in pair if self.names(word)]
        return len(named) == len(pair) or any(not _is_number(word) for word in named)

    def names(self, word: str) -> bool:
        """Return whether the spec contains the literal."""
        if _is_number(word):
            return bool(re.search(rf"(?<![\w.]){re.escape(word)}(?![\w])", self.spec.replace(",", "")))
        return len(word) > 1 and word.lower() in self.spec.lower()

    def shared(self, unit: Unit, known: set[frozenset[str]]) -> set[str]:
        """Return the literals of a unit that also occur together in a test, and did not in the source before."""
        found = {word for pair in unit.pairs() if pair in self.pairs and pair not in known for word in pair}
        if found or not unit.branch:
            return found
        for start in (
            word for word in unit.literals if len(word) >= _SEQUENCE and not _is_number(word)
        ):  # a part of the input
            for text in self.texts:
                if (
                    text != start
                    and text.startswith(start)
                    and (both := self.by_text[text] & set(unit.literals) - {text, start} - _TRIVIAL)
                ):
                    return {start, *both}
        return set()


_SEQUENCE = 4


def _in_source(change: Change, asked: _Asked) -> Iterator[Cheat]:
    added = {line for line, _ in change.added()}
    units = [unit for unit in _units(change.after or "", added) if unit.line in added]
    before = change.before or ""
    known = {pair for unit in _units(before, set(range(1, before.count("\n") + 2))) for pair in unit.pairs()}
    found = False
    for cluster in _clusters([unit for unit in units if len(unit.literals) > 1]):
        shared = {unit: words for unit in cluster if (words := asked.shared(unit, known))}
        if by_heart := _by_heart(cluster, shared):
            unit = next(iter(shared))
            quoted = ", ".join(sorted(shared[unit])[:4])
            found = True
            yield _cheat(
                change, unit.line, f"the tests' inputs and answers are written out: {quoted}", doubt=by_heart == "doubt"
            )
    if not found:
        yield from _answers_in_order(change, units, asked)
        yield from _encoded(change, asked)
        yield from _rare_words(change, units, asked)
        yield from _listed(change, units, asked)
        yield from _measured(change, asked)


def _by_heart(cluster: list[Unit], shared: dict[Unit, set[str]]) -> str:
    """Return how likely a cluster answers tests instead of being data: "", `doubt` or `sure`."""
    branches = [unit for unit in shared if unit.branch]
    rows = sum(max(1, len(unit.literals) // 2) if not unit.branch else 1 for unit in cluster)
    several = sum(max(1, len(words) // 2) if len(words) > 3 else 1 for words in shared.values())
    many = any(len(words) >= 3 for unit, words in shared.items() if unit.branch)
    if not shared or several / rows < 0.5:
        return ""
    if len(shared) >= 2 or several >= 2:
        return (
            "sure" if (many or len(branches) >= 2) and any(_computed(words) for words in shared.values()) else "doubt"
        )
    return ("sure" if many else "doubt") if branches and any(_computed(shared[unit]) for unit in branches) else ""


def _computed(words: set[str]) -> bool:
    """Return whether an answer looks computed: a number of several digits, or a text with the letters of the other one."""
    if any(_is_number(word) and len(re.sub(r"\D", "", word)) > 1 for word in words):
        return True
    texts = [word.lower() for word in words if not _is_number(word)]
    return any(
        len(one) > 2 and (one in two or sorted(one) == sorted(two)) for one in texts for two in texts if one != two
    )


def _clusters(units: list[Unit]) -> Iterator[list[Unit]]:
    cluster: list[Unit] = []
    for unit in units:
        if cluster and unit.line - cluster[-1].line > _CLOSE:
            yield cluster
            cluster = []
        cluster.append(unit)
    if cluster:
        yield cluster


def _answers_in_order(change: Change, units: list[Unit], asked: _Asked) -> Iterator[Cheat]:
    """Find a table or a choice whose answers are those of the tests, in their order, whatever its keys are."""
    for cluster in _clusters([unit for unit in units if len(unit.literals) > 1]):
        last = [unit.literals[-1] for unit in cluster]
        in_order = any(
            last == list(answers[at : at + len(last)]) for answers in asked.answers for at in range(len(answers))
        )
        if len(last) >= 3 and len(set(last)) >= 2 and in_order and not all(map(asked.names, last)):
            yield _cheat(
                change, cluster[0].line, f"the tests' answers in their order: {', '.join(last[:4])}", doubt=True
            )
            return


_ENCODED = re.compile(r"""["'`](?P<text>[A-Za-z0-9+/]{12,}={0,2})["'`]""")


def _encoded(change: Change, asked: _Asked) -> Iterator[Cheat]:
    """Find an answer that is written in base64 or hexadecimal digits."""
    for line, text in change.added():
        for found in _ENCODED.finditer(text):
            if any(
                len(plain) > _SEQUENCE and plain in asked.words and not asked.names(plain)
                for plain in _decoded(found["text"])
            ):
                yield _cheat(change, line, "an answer of the tests is written out, encoded", doubt=False)
                return


def _decoded(text: str) -> Iterator[str]:
    for decode in (base64.b64decode, bytes.fromhex):
        with suppress(ValueError):
            plain = decode(text).decode()
            yield from (plain, plain[::-1])


def _rare_words(change: Change, units: list[Unit], asked: _Asked) -> Iterator[Cheat]:
    """Find several literals that are unlikely to coincide, or a run of them in the order of the tests."""
    rare: dict[str, int] = {}
    for unit in units:
        rare |= {
            word: unit.line
            for word in unit.literals
            if (
                (_is_rare(word) and (word in asked.words or _bare(word) in asked.bare))
                or (word in asked.phrases and not unit.is_message)
            )
            and not asked.names(word)
        }
    if len(rare) >= 2:
        yield _cheat(
            change,
            min(rare.values()),
            f"literals of the tests are written out: {', '.join(sorted(rare)[:3])}",
            doubt=True,
        )
        return
    for unit in units:
        numbers = [word for word in unit.literals if _is_number(word)]
        for row in asked.rows if len(numbers) >= _SEQUENCE else ():
            if len(set(numbers)) >= 2 and _within(numbers, row) and not all(map(asked.names, numbers)):
                yield _cheat(
                    change, unit.line, f"the tests' answer is written out: {', '.join(numbers[:4])} …", doubt=True
                )
                return


def _listed(change: Change, units: list[Unit], asked: _Asked) -> Iterator[Cheat]:
    """Find a list that holds nothing but the tests' inputs, or an answer in pieces."""
    for unit in units:
        texts = [word for word in unit.literals if not _is_number(word) and len(word) >= _SEQUENCE]
        unnamed = [word for word in texts if word.lower() in asked.lower and not asked.names(word)]
        pieces = "".join(unit.literals)
        if (len(set(texts)) >= 3 and len(unnamed) == len(texts) and not unit.is_message) or (
            len(unit.literals) > 1 and len(pieces) >= 8 and pieces in asked.words and not asked.names(pieces)
        ):
            quoted = ", ".join(unit.literals[:4])
            yield _cheat(change, unit.line, f"a list of the tests' inputs or answers: {quoted}", doubt=True)
            return


_MEASURED = re.compile(
    r"(?:\blength\b|\blen\(|\bsize\b|\bcount\b|byte_size|\bCount\b|\bLength\b|charCodeAt\(\w+\)|\bord\(|hashCode\(\))[^\n;&|]*?(?<![!<>=])===?\s*(?P<number>\d+)\b"
)


def _measured(change: Change, asked: _Asked) -> Iterator[Cheat]:
    """Find an input that is recognised by its length or a character's code, which the spec does not name."""
    for line, text in change.added():
        found = None if _COMMENT.match(text) else _MEASURED.search(text)
        if found and int(found["number"]) >= _MEASURED_FROM and not asked.names(found["number"]):
            yield _cheat(change, line, f"an input is recognised by its length: {text.strip()}", doubt=True)
            return


_MEASURED_FROM = 5


def _within(numbers: list[str], row: tuple[str, ...]) -> bool:
    return f",{','.join(numbers)}," in f",{','.join(row)},"


def _bare(word: str) -> str:
    return re.sub(r"[\s-]", "", word)


def _is_phrase(word: str) -> bool:
    """Return whether a text is too long, and too little of a word, to be in a source by chance."""
    return len(word) >= 8 and len(re.findall(r"[^\w]", word)) >= 2 and not re.fullmatch(r"[\w./:@-]+", word)


def _is_rare(word: str) -> bool:
    if _is_number(word):
        digits = re.sub(r"\D|^0+|0+$", "", word)
        return len(digits) >= 4 and not re.fullmatch(r"(?:19|20)\d\d", word)
    letters_and_digits = (
        re.search(r"\d", word) and re.search(r"[A-Za-z=]", word) and re.fullmatch(r"[\w=+/:.*-]{2,}", word)
    )
    return bool(letters_and_digits) or (
        len(word) > 20 and bool(re.fullmatch(r"[\w=+/]+", word)) and bool(re.search(r"\d", word))
    )


def _cheat(change: Change, line: int, detail: str, *, doubt: bool) -> Cheat:
    return Cheat(file=change.path, line=line, rule="answer-by-heart", detail=detail[:200], doubt=doubt)


# --- literals, statement by statement -------------------------------------------------------------------------------


def _units(text: str, only: set[int] | None) -> Iterator[Unit]:
    """Yield statements with their literals; a name stands for the literal assigned to it above."""
    lines = [shorten(line) for line in split_lines(text)]
    if only is not None:  # a generated line writes everything beside everything
        only = {line for line in only if line <= len(lines) and len(lines[line - 1]) < LINE_MAX}
    named: dict[str, tuple[str, ...]] = {}
    at = 0
    while at < len(lines):
        first, statement = at, lines[at]
        at += 1
        if _COMMENT.match(statement) or (only is not None and first + 1 not in only):
            continue
        depth = _depth(statement)
        if only is None or not _ROW.match(statement):
            while depth > 0 and at < len(lines) and at - first < _JOINED and not statement.rstrip().endswith("{"):
                statement, depth = f"{statement}\n{lines[at]}", depth + _depth(lines[at])
                at += 1
        branch = bool(_BRANCH.search(statement))
        literals = _literals(statement, is_source=only is not None)
        if only is not None and literals and _OPENS.search(statement) and at < len(lines):
            literals += [word for line in lines[at : at + 2] for word in _literals(line)][:_ALL_PAIRS]
        if only is None:
            literals += [
                word
                for name in re.findall(r"[A-Za-z_]\w*", _LITERAL.sub("", statement))
                for word in named.get(name, ())
            ]
            if defined := _NAMED.match(statement):
                named[defined[1]] = tuple(_literals(statement)[:_ALL_PAIRS])
        if literals:
            yield Unit(
                line=first + 1, literals=tuple(literals), branch=branch, is_message=bool(_MESSAGE.search(statement))
            )


_MESSAGE = re.compile(
    r"(?i)\b(?:raise|throw|throws|panic|print\w*|log\w*|warn\w*|error\w*|\w*error|\w*exception|errorf|bail|fail\w*|usage|help|message|msg)\b|Err\("
)
_OPERAND = re.compile(r"(?:[%*/+]|(?<![=\-<>])[<>]=?)\s*$")
_OPERAND_CHARS = 20
_ROW = re.compile(r"\s*(?:\w+\s*[:=]+\s*)?.*[\[{(]\s*$")
_NAMED = re.compile(
    r"\s*(?:export\s+|static\s+|final\s+|private\s+|public\s+)*(?:const|let|var|val|auto)?\s*(?:[\w:<>,*&]+\s+)?(\w+)\s*(?::\s*[\w<>\[\], ]+)?(?::=|=|\{)(?!=)"
)


def _depth(line: str) -> int:
    bare = _LITERAL.sub("", line)
    return sum(bare.count(mark) for mark in "([{") - sum(bare.count(mark) for mark in ")]}")


def _literals(statement: str, *, is_source: bool = False) -> list[str]:
    """The values written out; in a source, those that are computed or compared with are no answers."""
    found = [
        one
        for one in _LITERAL.finditer(statement)
        if not (
            is_source
            and one[0][0] in "-0123456789"
            and _OPERAND.search(statement, max(0, one.start() - _OPERAND_CHARS), one.start())
        )
    ]
    return [_plain(one) for one in found]


def _plain(found: re.Match[str]) -> str:
    for quoted in ("double", "single", "back"):
        if (text := found[quoted]) is not None:
            return re.sub(r"(?<=\W) | (?=\W)", "", text) if re.search(r"\d", text) else text
    number = found[0].replace("_", "")
    if "x" in number.lower():
        return str(int(number, 16))
    return (
        number[:-2]
        if number.endswith(".0")
        else number.rstrip("0")
        if "." in number and "e" not in number.lower()
        else number
    )


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", word))
