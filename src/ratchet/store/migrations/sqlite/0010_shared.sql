-- The paths an item is expected to change, one to a line: taken as locks by the claim.
ALTER TABLE items ADD COLUMN footprint TEXT NOT NULL DEFAULT '';

-- All ledgers in the order they were written, for those who follow them live.
CREATE TABLE feed (
  place INTEGER PRIMARY KEY AUTOINCREMENT,
  run   TEXT NOT NULL,
  seq   INTEGER NOT NULL
) STRICT;
INSERT INTO feed (run, seq) SELECT run, seq FROM events ORDER BY at, run, seq;
CREATE TRIGGER events_feed AFTER INSERT ON events BEGIN INSERT INTO feed (run, seq) VALUES (NEW.run, NEW.seq); END;

-- What the figures count.
DROP INDEX events_iterations;
CREATE INDEX events_counted ON events (at, kind) WHERE kind IN ('run_completed', 'run_failed', 'run_returned',
  'red_confirmed', 'step_committed', 'step_reverted', 'refactor_reverted', 'revision_reverted', 'step_resumed');

-- What a worker said after its lease was lost.
CREATE TABLE late (
  id         TEXT PRIMARY KEY,
  run        TEXT NOT NULL REFERENCES runs (id),
  item       TEXT NOT NULL REFERENCES items (id),
  epoch      INTEGER NOT NULL,
  worker     TEXT NOT NULL,
  at         TEXT NOT NULL,
  kind       TEXT NOT NULL,
  head       TEXT NOT NULL,
  detail     TEXT NOT NULL,
  checked_at TEXT NOT NULL DEFAULT '',
  kept       INTEGER NOT NULL DEFAULT 0,
  UNIQUE (run, epoch, kind, head)
) STRICT;
CREATE INDEX late_unchecked ON late (at) WHERE checked_at = '';

CREATE VIRTUAL TABLE learnings_words USING fts5 (content, tags, id UNINDEXED, tokenize = 'porter unicode61');
