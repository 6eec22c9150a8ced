"""Learnings in SQL: appended with their origin, merged when near-identical, found by failure, words and meaning.

Each backend has its own text index and vector index; what a search does with them is written once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from ratchet.core.learning import (
    FINGERPRINTS_MAX,
    MEANING_WEIGHT,
    MEASURES,
    WORDS_MAX,
    WORDS_WEIGHT,
    Learning,
    LearningKind,
    LearningTrial,
    LearningVector,
    TrialArm,
    TrialSums,
    are_near_identical,
    control_character,
    fuse,
    index_words,
    learning_error,
    lift_factor,
    search_terms,
)
from ratchet.core.redact import Redactor
from ratchet.core.timestamps import format_timestamp
from ratchet.errors import NotFound, UsageError
from ratchet.store.database import Database, Row, Transaction, reads, writes

# Only keys of known formats: the values of secret variables are redacted where those variables are.
_REDACT = Redactor()
_RANKED_MAX = 64
# Words are added, rarest first, while all together are in at most this many learnings: a word that most learnings
# have distinguishes little and would cost most of the time.
_MATCHES_MAX = 2_000
_ALIKE_MAX = 5


class SqlLearnings(Database):
    _index_words: str
    _find_words: str

    def _word_query(self, words: dict[str, float]) -> str:
        """Return the backend's query for any of these words; the values say how telling they are."""
        raise NotImplementedError

    def _store_vectors(self, db: Transaction, embedder: int, rows: list[tuple[str, str, list[float]]]) -> None:
        """Store (learning, repo, vector) rows. Raises EnvironmentCannot where vectors are not possible."""
        raise NotImplementedError

    def _nearest(self, db: Transaction, embedder: int, vector: Sequence[float], repo: str, limit: int) -> list[str]:
        """Return the learnings with the nearest vectors; none where vectors are not possible."""
        raise NotImplementedError

    def vector_search_error(self) -> str:
        raise NotImplementedError

    # --- writing ---------------------------------------------------------------------------------------------

    @writes
    def add_learning(self, db: Transaction, learning: Learning) -> Learning:
        return self._add_one(db, _checked(learning))

    @writes
    def add_learnings(self, db: Transaction, learnings: Sequence[Learning]) -> list[Learning]:
        return [self._add_one(db, learning) for learning in [_checked(learning) for learning in learnings]]

    def _add_one(self, db: Transaction, learning: Learning) -> Learning:
        db.advisory_lock("learnings")
        known = db.fetch_one(f"{_ROW} WHERE id = ?", learning.id)
        found = _learning(known) if known else self._alike(db, learning)
        if known is None:
            self._insert_learning(db, replace(learning, merged_into=found.id if found else ""))
        kept = found.merged_into or found.id if found else learning.id
        self._sight(db, kept, learning)
        return _one(db, kept)

    def _alike(self, db: Transaction, learning: Learning) -> Learning | None:
        """Return a near-identical learning of the same repository, retired or not: what was retired is not learnt
        again."""
        rows = self._by_words(db, learning.content, (learning.repo, learning.repo, "", ""), _ALIKE_MAX, every=True)
        found = _many(db, rows)
        dead = learning.kind is LearningKind.DEAD_END
        alike = [
            one
            for one in found
            if one.repo == learning.repo
            and (one.kind is LearningKind.DEAD_END) is dead
            and are_near_identical(one.content, learning.content)
        ]
        return alike[0] if alike else None

    def _insert_learning(self, db: Transaction, learning: Learning) -> None:
        tags = "\n" + "\n".join(learning.tags) + "\n" if learning.tags else ""
        row = (
            learning.id,
            learning.repo,
            learning.run,
            learning.seq,
            learning.created_at,
            msgspec.json.encode(learning),
        )
        db.execute(_LEARN, *row, learning.spec, tags, learning.kind, learning.merged_into)
        if learning.merged_into:
            return
        content, marks = index_words(learning)
        db.execute(self._index_words, content, marks, learning.id)
        self._count_words(db, Counter({_EVERY, *content.split(), *marks.split()}))

    def _count_words(self, db: Transaction, words: Counter[str]) -> None:
        db.execute_many(_COUNT, sorted(words.items()))  # in one order: concurrent writers do not deadlock

    def _sight(self, db: Transaction, kept: str, learning: Learning) -> None:
        """Record that a run, person or agent produced a learning. A second run turns a candidate into a lesson."""
        sighting = f"{learning.run}:{learning.seq}" if learning.run else learning.id
        at = format_timestamp(self._clock())
        db.execute(_SIGHT, kept, sighting, learning.run or str(learning.source), at)
        fingerprints = learning.fingerprints[:FINGERPRINTS_MAX]
        db.execute_many(_FAILURE, [(each, kept) for each in fingerprints])
        db.execute(_CONFIRM, kept, kept)

    @writes
    def retire_learning(self, db: Transaction, learning: str, *, by: str = "", why: str = "") -> Learning:
        if wrong := control_character("reason", why) or control_character("name", by):
            raise UsageError(f"cannot retire the learning: {wrong}", hint="give the reason in plain text")
        db.execute(_RETIRE, format_timestamp(self._clock()), by, why, learning)
        return _one(db, learning)

    @writes
    def learn_run(
        self, db: Transaction, run: str, learnings: Sequence[Learning], trials: Sequence[LearningTrial]
    ) -> list[Learning]:
        kept = [self._add_one(db, learning) for learning in [_checked(learning) for learning in learnings]]
        db.execute_many(_TRIAL, [_trial_row(trial) for trial in trials])
        db.execute("UPDATE runs SET learnt = 1 WHERE id = ?", run)
        return kept

    @writes
    def rate_learnings(self, db: Transaction, lifts: dict[str, float]) -> None:
        db.execute_many("UPDATE learnings SET lift = ? WHERE id = ?", [(lift, each) for each, lift in lifts.items()])

    @reads
    def unlearnt_runs(self, db: Transaction, *, limit: int = 100) -> list[str]:
        return [row["id"] for row in db.fetch_all(_UNLEARNT, limit)]

    @reads
    def trial_sums(self, db: Transaction, repo: str = "") -> list[TrialSums]:
        return [_sums(row) for row in db.fetch_all(_TRIAL_SUMS, repo, repo)]

    # --- reading ---------------------------------------------------------------------------------------------

    @reads
    def learning(self, db: Transaction, learning: str) -> Learning:
        return _one(db, learning)

    @reads
    def learnings(
        self,
        db: Transaction,
        repo: str = "",
        *,
        query: str = "",
        spec: str = "",
        tag: str = "",
        retired: bool = False,
        vector: Sequence[float] = (),
        embedder: str = "",
        limit: int = 50,
    ) -> list[Learning]:
        limit, scope = max(1, min(limit, 500)), (repo, repo, spec, f"\n{tag}\n" if tag else "")
        if not query and not vector:
            rows = db.fetch_all(self._scoped(_RETIRED if retired else _NEWEST), *scope, limit)
            return [_learning(row) for row in rows]
        ranked = max(limit, _RANKED_MAX)
        rankings = [(WORDS_WEIGHT, self._by_words(db, query, scope, ranked))]
        if vector:
            rankings.append((MEANING_WEIGHT, self._by_vector(db, embedder, vector, repo, ranked)))
        scores = fuse(rankings)
        best = sorted(scores, key=lambda each: (-scores[each], each))[: 2 * ranked]
        found = [one for one in _many(db, best) if _is_in(one, spec, tag)]
        return sorted(found, key=lambda one: (-scores[one.id] * lift_factor(one.lift), one.id))[:limit]

    @reads
    def older_learnings(self, db: Transaction, repo: str = "", *, than: str = "", limit: int = 500) -> list[Learning]:
        return [_learning(row) for row in db.fetch_all(self._scoped(_OLDER), repo, repo, "", "", than, than, limit)]

    @reads
    def learnings_of_failures(
        self, db: Transaction, repo: str, fingerprints: Sequence[str], *, limit: int = 50
    ) -> list[Learning]:
        found = [row["learning"] for each in fingerprints for row in db.fetch_all(_OF_FAILURE, each)]
        live = [one for one in _many(db, found) if not one.retired_at and one.repo in (repo, "")]
        return sorted(live, key=lambda one: (-lift_factor(one.lift), -one.seen, one.id))[:limit]

    def _scoped(self, sql: str) -> str:
        return sql.format(contains=self._contains)

    _contains: str

    def _by_words(
        self, db: Transaction, query: str, scope: tuple[str, ...], limit: int, *, every: bool = False
    ) -> list[str]:
        words = _selective(db, search_terms(query))
        if not words:
            return []
        sql = self._find_words.format(scope=self._scoped(_SCOPE), live="" if every else _LIVE)
        return [row["id"] for row in db.fetch_all(sql, self._word_query(words), *scope, limit)]

    def _by_vector(self, db: Transaction, embedder: str, vector: Sequence[float], repo: str, limit: int) -> list[str]:
        row = db.fetch_one("SELECT id, dimensions FROM learning_embedders WHERE name = ?", embedder)
        if row is None:
            return []
        _check_dimensions(embedder, int(row["dimensions"]), vector)
        near = self._nearest(db, int(row["id"]), vector, repo, limit + _RANKED_MAX)
        rows = db.fetch_all(f"{_STANDING} ({', '.join('?' * len(near))})", *near) if near else []
        live = {row["id"] for row in rows if not repo or row["repo"] in (repo, "")}
        return [each for each in near if each in live][:limit]

    # --- vectors ---------------------------------------------------------------------------------------------

    @reads
    def learnings_without_vector(self, db: Transaction, embedder: str, *, limit: int = 100) -> list[Learning]:
        row = db.fetch_one("SELECT id FROM learning_embedders WHERE name = ?", embedder)
        if row is None:
            return [_learning(row) for row in db.fetch_all(self._scoped(_NEWEST), "", "", "", "", limit)]
        if self.vector_search_error():
            return []
        return [_learning(each) for each in db.fetch_all(_WITHOUT_VECTOR, int(row["id"]), limit)]

    def add_learning_vectors(self, embedder: str, vectors: Sequence[LearningVector]) -> None:
        if vectors:
            self._add_vectors(embedder, vectors)

    @writes
    def _add_vectors(self, db: Transaction, embedder: str, vectors: Sequence[LearningVector]) -> None:
        dimensions = len(vectors[0].vector)
        if not embedder or not dimensions:
            raise UsageError("a vector needs a named embedder and at least one dimension")
        db.execute(_EMBEDDER, embedder, dimensions)
        row = db.fetch_one("SELECT id, dimensions FROM learning_embedders WHERE name = ?", embedder)
        assert row
        for each in vectors:
            _check_dimensions(embedder, int(row["dimensions"]), each.vector)
        rows = [(each.learning, _one(db, each.learning).repo, _unit(each.vector)) for each in vectors]
        self._store_vectors(db, int(row["id"]), rows)


def _is_in(learning: Learning, spec: str, tag: str) -> bool:
    return spec in learning.spec and (not tag or tag in learning.tags)


def _selective(db: Transaction, words: list[str]) -> dict[str, float]:
    """Return the rarest words with their weight, as many as together are in few learnings."""
    forms = {word: _forms(word) for word in words}
    every = sorted({_EVERY}.union(*forms.values()))
    rows = db.fetch_all(f"{_TERMS} (?{', ?' * (len(every) - 1)})", *every) if words else []
    found = {row["term"]: int(row["count"]) for row in rows}
    counts = {word: max(found.get(form, 0) for form in forms[word]) for word in words}
    most = max(found.values(), default=1)
    chosen: dict[str, float] = {}
    matches = 0
    for word in sorted(words, key=lambda word: counts.get(word, 0))[:WORDS_MAX]:
        matches += (count := counts.get(word, 0))
        if chosen and matches > _MATCHES_MAX:
            break
        chosen[word] = math.log(1 + (most + 1) / (count + 1))
    return chosen


def _forms(word: str) -> set[str]:
    """Return forms of a word that the text index treats alike: as many learnings match it as any of them."""
    stem = next((word.removesuffix(end) for end in ("ing", "ed", "s") if word.endswith(end)), word)
    return {word, stem, *(stem + end for end in ("e", "s", "es", "ed", "ing"))}


def _check_dimensions(embedder: str, dimensions: int, vector: Sequence[float]) -> None:
    if len(vector) != dimensions:
        raise UsageError(
            f"the embedder {embedder} has {dimensions} dimensions, and this vector has {len(vector)}",
            hint="give an embedder whose dimensions changed another name",
        )
    if not all(map(math.isfinite, vector)):
        raise UsageError(f"a vector of {embedder} has a value that is not a finite number")


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def _checked(learning: Learning) -> Learning:
    if wrong := learning_error(learning):
        raise UsageError(f"this is not a learning: {wrong}", hint="write one fact in plain text")
    tags = [" ".join(tag.split()) for tag in learning.tags]
    return replace(learning, content=_REDACT.text(learning.content), spec=_REDACT.text(learning.spec), tags=tags)


def _trial_row(trial: LearningTrial) -> tuple[object, ...]:
    values = (trial.attempts, trial.repeats, trial.reverts, trial.cost_usd, int(trial.green))
    return (trial.learning, trial.run, trial.seq, trial.arm, *values, trial.at)


def _sums(row: Row) -> TrialSums:
    body = msgspec.json.decode(row["body"], type=Learning)
    return TrialSums(
        learning=row["learning"],
        source=body.source,
        content=body.content,
        arm=TrialArm(row["arm"]),
        retired=bool(row["retired_at"]),
        trials=int(row["trials"]),
        green=int(row["green"]),
        sums={name: float(row[name]) for name in MEASURES},
        squares={name: float(row[f"{name}_squared"]) for name in MEASURES},
    )


def _one(db: Transaction, learning: str) -> Learning:
    row = db.fetch_one(f"{_ROW} WHERE id = ?", learning)
    if row is None:
        raise NotFound(f"there is no learning {learning}", hint="ratchet learn list", learning=learning)
    return _learning(row)


def _many(db: Transaction, ids: Iterable[str]) -> list[Learning]:
    """Return these learnings in their order, each once."""
    wanted = list(dict.fromkeys(ids))
    rows = db.fetch_all(f"{_ROW} WHERE id IN ({', '.join('?' * len(wanted))})", *wanted) if wanted else []
    found = {row["id"]: _learning(row) for row in rows}
    return [found[each] for each in wanted if each in found]


def _learning(row: Row) -> Learning:
    kept = msgspec.json.decode(row["body"], type=Learning)
    columns = ("retired_at", "retired_by", "retired_why", "merged_into", "lift")
    seen = max(1, int(row["seen"]))
    return replace(kept, kind=LearningKind(row["kind"]), seen=seen, **{name: row[name] for name in columns})


_SEEN = "(SELECT count(DISTINCT run) FROM learning_sightings WHERE learning = learnings.id)"
_ROW = f"SELECT learnings.*, {_SEEN} AS seen FROM learnings"  # noqa: S608 — ours
# Concatenated with '' where an index would be worse than the index of the words.
_SCOPE = """
(? = '' OR learnings.repo || '' IN (?, '')) AND {contains}(learnings.spec, ?) > 0 AND {contains}(learnings.tags, ?) > 0
"""
_LIVE = "AND retired_at || '' = '' AND merged_into || '' = ''"
_LEARN = """
INSERT INTO learnings (id, repo, run, seq, created_at, body, spec, tags, kind, merged_into)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SIGHT = "INSERT INTO learning_sightings (learning, id, run, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_FAILURE = "INSERT INTO learning_failures (fingerprint, learning) VALUES (?, ?) ON CONFLICT DO NOTHING"
_CONFIRM = f"UPDATE learnings SET kind = 'lesson' WHERE id = ? AND kind = 'candidate' AND {_SEEN} > 1 AND id = ?"  # noqa: S608 — ours
_RETIRE = """
UPDATE learnings SET retired_at = ?, retired_by = ?, retired_why = ? WHERE id = ? AND retired_at = ''
"""
_COUNT = """
INSERT INTO learning_terms (term, count) VALUES (?, ?)
ON CONFLICT (term) DO UPDATE SET count = learning_terms.count + excluded.count
"""
_TRIAL = """
INSERT INTO learning_trials (learning, run, seq, arm, attempts, repeats, reverts, cost_usd, green, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_UNLEARNT = """
SELECT id FROM runs WHERE status <> 'running' AND learnt = 0 ORDER BY id LIMIT ?
"""
_MEASURED = ", ".join(f"sum({name}) AS {name}, sum({name} * {name}) AS {name}_squared" for name in MEASURES)
_TRIAL_SUMS = f"""
SELECT summed.*, learnings.body, learnings.retired_at FROM (
  SELECT learning, arm, count(*) AS trials, sum(green) AS green, {_MEASURED}
  FROM learning_trials GROUP BY learning, arm
) AS summed JOIN learnings ON learnings.id = summed.learning
WHERE ? = '' OR learnings.repo IN (?, '') ORDER BY learning, arm
"""  # noqa: S608 — names of ours
_EVERY = ""  # counts all learnings, as if it were a word that each of them has
_STANDING = "SELECT id, repo FROM learnings WHERE retired_at = '' AND merged_into = '' AND id IN"
_TERMS = "SELECT term, count FROM learning_terms WHERE term IN"
_NEWEST = f"""{_ROW} WHERE retired_at = '' AND merged_into = '' AND {_SCOPE}
ORDER BY created_at DESC, id DESC LIMIT ?
"""
_OLDER = f"""{_ROW} WHERE retired_at = '' AND merged_into = '' AND {_SCOPE}
AND (? = '' OR (created_at, id) < (SELECT created_at, id FROM learnings AS last WHERE last.id = ?))
ORDER BY created_at DESC, id DESC LIMIT ?
"""  # noqa: S608 — ours
_RETIRED = f"{_ROW} WHERE retired_at <> '' AND {_SCOPE} ORDER BY retired_at DESC, id DESC LIMIT ?"
_OF_FAILURE = "SELECT learning FROM learning_failures WHERE fingerprint = ? LIMIT 50"
_EMBEDDER = "INSERT INTO learning_embedders (name, dimensions) VALUES (?, ?) ON CONFLICT DO NOTHING"
_WITHOUT_VECTOR = f"""{_ROW} WHERE retired_at = '' AND merged_into = '' AND NOT EXISTS
(SELECT 1 FROM learning_vectors WHERE learning_vectors.embedder = ? AND learning_vectors.learning = learnings.id)
LIMIT ?
"""  # noqa: S608 — ours
