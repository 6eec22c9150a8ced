-- What learnings are filtered by, and what became of them.
ALTER TABLE learnings ADD COLUMN spec TEXT NOT NULL DEFAULT '';
ALTER TABLE learnings ADD COLUMN tags TEXT NOT NULL DEFAULT '';
ALTER TABLE learnings ADD COLUMN kind TEXT NOT NULL DEFAULT 'lesson';
ALTER TABLE learnings ADD COLUMN merged_into TEXT NOT NULL DEFAULT '';
ALTER TABLE learnings ADD COLUMN retired_by TEXT NOT NULL DEFAULT '';
ALTER TABLE learnings ADD COLUMN retired_why TEXT NOT NULL DEFAULT '';
ALTER TABLE learnings ADD COLUMN lift REAL;

UPDATE learnings SET spec = COALESCE(json_extract(CAST(body AS TEXT), '$.spec'), ''), tags = COALESCE(
  (SELECT char(10) || group_concat(value, char(10)) || char(10) FROM json_each(CAST(body AS TEXT), '$.tags')), '');

-- Each run, person or agent that came to a learning; only added to.
CREATE TABLE learning_sightings (
  learning TEXT NOT NULL,
  id       TEXT NOT NULL,
  run      TEXT NOT NULL,
  at       TEXT NOT NULL,
  PRIMARY KEY (learning, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE learning_failures (
  fingerprint TEXT NOT NULL,
  learning    TEXT NOT NULL,
  PRIMARY KEY (fingerprint, learning)
) STRICT, WITHOUT ROWID;

-- In how many learnings a word is: a search leaves out the words that most of them have.
CREATE TABLE learning_terms (
  term  TEXT PRIMARY KEY,
  count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE learning_embedders (
  id         INTEGER PRIMARY KEY,
  name       TEXT NOT NULL UNIQUE,
  dimensions INTEGER NOT NULL
) STRICT;
-- Rows are read in the order of `n` into a file that searches map into memory.
CREATE TABLE learning_vectors (
  n        INTEGER PRIMARY KEY AUTOINCREMENT,
  embedder INTEGER NOT NULL,
  learning TEXT NOT NULL,
  repo     TEXT NOT NULL,
  vector   BLOB NOT NULL,
  UNIQUE (embedder, learning)
) STRICT;
CREATE INDEX learning_vectors_new ON learning_vectors (embedder, n);
CREATE INDEX learnings_live ON learnings (created_at) WHERE retired_at = '' AND merged_into = '';

-- What followed each delivery of a learning, and each time it was held out: derived from the ledger when a run ends.
CREATE TABLE learning_trials (
  learning TEXT NOT NULL,
  run      TEXT NOT NULL,
  seq      INTEGER NOT NULL,
  arm      TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  repeats  INTEGER NOT NULL,
  reverts  INTEGER NOT NULL,
  cost_usd REAL NOT NULL,
  green    INTEGER NOT NULL,
  at       TEXT NOT NULL,
  PRIMARY KEY (learning, run, seq)
) STRICT, WITHOUT ROWID;
