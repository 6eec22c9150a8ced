ALTER TABLE items ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN request_key TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN turn INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN returns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE items ADD COLUMN not_before TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN park_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE items ADD COLUMN detail TEXT NOT NULL DEFAULT '';

-- What schema 1 left in hand without a lease is in the queue here.
UPDATE items SET status = 'queued' WHERE status IN ('assigned', 'in_progress')
  AND NOT EXISTS (SELECT 1 FROM leases WHERE leases.run = items.run);

DROP INDEX items_open;
CREATE UNIQUE INDEX items_open ON items (repo, source, source_ref)
  WHERE source_ref <> '' AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked');
CREATE UNIQUE INDEX items_asked ON items (request_key) WHERE request_key <> '';
CREATE INDEX items_queue ON items (turn, id) WHERE status = 'queued';
CREATE INDEX items_parked ON items (not_before) WHERE status = 'parked';
CREATE INDEX items_listed ON items (turn, id);

CREATE TABLE needs (
  item TEXT NOT NULL REFERENCES items (id),
  need TEXT NOT NULL REFERENCES items (id),
  PRIMARY KEY (item, need)
) STRICT, WITHOUT ROWID;
CREATE INDEX needs_back ON needs (need);

ALTER TABLE leases ADD COLUMN token_sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN id TEXT NOT NULL DEFAULT '';
CREATE INDEX leases_expiry ON leases (expires_at);
CREATE INDEX leases_token ON leases (token_sha256);

CREATE TABLE workers (
  id         TEXT PRIMARY KEY,
  name       TEXT NOT NULL,
  item       TEXT NOT NULL REFERENCES items (id),
  run        TEXT NOT NULL REFERENCES runs (id),
  epoch      INTEGER NOT NULL,
  status     TEXT NOT NULL,
  started_at TEXT NOT NULL,
  beat_at    TEXT NOT NULL,
  ended_at   TEXT NOT NULL DEFAULT '',
  iteration  INTEGER NOT NULL DEFAULT 0,
  nudges     INTEGER NOT NULL DEFAULT 0,
  detail     TEXT NOT NULL DEFAULT '',
  UNIQUE (run, epoch)
) STRICT;
CREATE INDEX workers_started ON workers (started_at);

-- A lock cannot outlive the lease it was taken under.
CREATE TABLE locks (
  repo TEXT NOT NULL,
  path TEXT NOT NULL,
  run  TEXT NOT NULL REFERENCES leases (run) ON DELETE CASCADE,
  PRIMARY KEY (repo, path, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX locks_run ON locks (run);

-- Whole units: millionths of a dollar, milliseconds.
CREATE TABLE reservations (
  id               TEXT PRIMARY KEY,
  run              TEXT NOT NULL REFERENCES runs (id),
  epoch            INTEGER NOT NULL,
  item             TEXT NOT NULL REFERENCES items (id),
  repo             TEXT NOT NULL,
  day              TEXT NOT NULL,
  status           TEXT NOT NULL,
  held_cost_usd    INTEGER NOT NULL,
  held_tokens      INTEGER NOT NULL,
  held_seconds     INTEGER NOT NULL,
  held_iterations  INTEGER NOT NULL,
  spent_cost_usd   INTEGER NOT NULL DEFAULT 0,
  spent_tokens     INTEGER NOT NULL DEFAULT 0,
  spent_seconds    INTEGER NOT NULL DEFAULT 0,
  spent_iterations INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX reservations_item ON reservations (item);
CREATE INDEX reservations_day ON reservations (day, repo);
CREATE INDEX reservations_held ON reservations (run, epoch) WHERE status = 'held';

CREATE INDEX events_iterations ON events (at) WHERE kind = 'red_confirmed';

CREATE TABLE learnings (
  id         TEXT PRIMARY KEY,
  repo       TEXT NOT NULL,
  run        TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  retired_at TEXT NOT NULL DEFAULT '',
  body       BLOB NOT NULL
) STRICT;
CREATE INDEX learnings_repo ON learnings (repo) WHERE retired_at = '';

CREATE TABLE metrics (
  at    TEXT NOT NULL,
  name  TEXT NOT NULL,
  run   TEXT NOT NULL,
  value REAL NOT NULL
) STRICT;
CREATE INDEX metrics_name ON metrics (name, at);
