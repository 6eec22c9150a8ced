-- A worker that has not ended holds the lease on its run: one row a claim, not two.
INSERT INTO workers (id, name, item, run, epoch, status, started_at, beat_at, token_sha256)
  SELECT 'worker-' || leases.run, worker, runs.item, leases.run, leases.epoch, 'running', runs.created_at,
         runs.created_at, leases.token_sha256
  FROM leases JOIN runs ON runs.id = leases.run
  WHERE NOT EXISTS (SELECT 1 FROM workers WHERE workers.run = leases.run AND workers.epoch = leases.epoch);
CREATE TABLE claims (
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
  token_sha256 TEXT NOT NULL DEFAULT '',
  machine    TEXT NOT NULL DEFAULT '',
  pid        INTEGER NOT NULL DEFAULT 0,
  born       TEXT NOT NULL DEFAULT '',
  expires_at TEXT NOT NULL DEFAULT '',
  UNIQUE (run, epoch)
) STRICT, WITHOUT ROWID;
INSERT INTO claims
  SELECT workers.id, name, item, workers.run, workers.epoch, status, started_at, beat_at, ended_at, iteration, nudges,
         detail, workers.token_sha256, COALESCE(machine, ''), COALESCE(pid, 0), COALESCE(born, ''),
         COALESCE(expires_at, '')
  FROM workers LEFT JOIN leases ON leases.run = workers.run AND leases.epoch = workers.epoch AND ended_at = '';
DROP TABLE workers;
ALTER TABLE claims RENAME TO workers;
CREATE INDEX workers_started ON workers (started_at);
CREATE INDEX workers_leases ON workers (expires_at) WHERE ended_at = '';

-- A lock ends with its lease.
CREATE TABLE paths (
  repo TEXT NOT NULL,
  path TEXT NOT NULL,
  run  TEXT NOT NULL REFERENCES runs (id),
  PRIMARY KEY (repo, path, run)
) STRICT, WITHOUT ROWID;
INSERT INTO paths SELECT repo, path, run FROM locks;
DROP TABLE locks;
ALTER TABLE paths RENAME TO locks;
CREATE INDEX locks_run ON locks (run);

DROP TABLE leases;
CREATE VIEW leases AS
  SELECT id, run, item, epoch, name AS worker, machine, pid, born, expires_at FROM workers WHERE ended_at = '';

-- An event's place among all of them is its row's number: one row an event, not two.
CREATE TABLE placed (
  place INTEGER PRIMARY KEY,
  run   TEXT NOT NULL REFERENCES runs (id),
  seq   INTEGER NOT NULL,
  at    TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  data  BLOB NOT NULL,
  prev  TEXT NOT NULL,
  sum   TEXT NOT NULL,
  UNIQUE (run, seq)
) STRICT;
INSERT INTO placed
  SELECT place, events.run, events.seq, at, epoch, kind, data, prev, sum
  FROM feed JOIN events ON events.run = feed.run AND events.seq = feed.seq;
DROP TABLE events;
DROP TABLE feed;
ALTER TABLE placed RENAME TO events;
CREATE INDEX events_counted ON events (at, kind) WHERE kind IN ('run_completed', 'run_failed', 'run_returned',
  'red_confirmed', 'step_committed', 'step_reverted', 'refactor_reverted', 'revision_reverted', 'step_resumed');
