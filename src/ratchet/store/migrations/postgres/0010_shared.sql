-- The paths an item is expected to change, one to a line: taken as locks by the claim.
ALTER TABLE items ADD COLUMN footprint TEXT COLLATE "C" NOT NULL DEFAULT '';

-- All ledgers in the order of their transactions, for those who follow them live.
ALTER TABLE events ADD COLUMN place BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX events_feed ON events (place, run, seq);

-- What the figures count.
DROP INDEX events_iterations;
CREATE INDEX events_counted ON events (at, kind) WHERE kind IN ('run_completed', 'run_failed', 'run_returned',
  'red_confirmed', 'step_committed', 'step_reverted', 'refactor_reverted', 'revision_reverted', 'step_resumed');

-- What a worker said after its lease was lost.
CREATE TABLE late (
  id         TEXT COLLATE "C" PRIMARY KEY,
  run        TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
  item       TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  epoch      BIGINT NOT NULL,
  worker     TEXT COLLATE "C" NOT NULL,
  at         TEXT COLLATE "C" NOT NULL,
  kind       TEXT COLLATE "C" NOT NULL,
  head       TEXT COLLATE "C" NOT NULL,
  detail     TEXT COLLATE "C" NOT NULL,
  checked_at TEXT COLLATE "C" NOT NULL DEFAULT '',
  kept       BIGINT NOT NULL DEFAULT 0,
  UNIQUE (run, epoch, kind, head)
);
CREATE INDEX late_unchecked ON late (at) WHERE checked_at = '';

ALTER TABLE learnings ADD COLUMN words TSVECTOR;
CREATE INDEX learnings_words ON learnings USING gin (words);

-- Queue rows change status all the time: look after them before they slow the claim down.
ALTER TABLE items SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, fillfactor = 70);
ALTER TABLE leases SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, fillfactor = 70);
