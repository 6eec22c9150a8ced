CREATE TABLE items (
  id         TEXT PRIMARY KEY,
  repo       TEXT NOT NULL,
  source_ref TEXT NOT NULL,
  status     TEXT NOT NULL,
  rank       INTEGER NOT NULL,
  run        TEXT,
  created_at TEXT NOT NULL,
  body       BLOB NOT NULL
) STRICT;

-- One source reference is one piece of work while it is open: asking twice is not two items.
CREATE UNIQUE INDEX items_open ON items (repo, source_ref)
  WHERE source_ref <> '' AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked');

CREATE TABLE runs (
  id         TEXT PRIMARY KEY,
  item       TEXT NOT NULL REFERENCES items (id),
  status     TEXT NOT NULL,
  created_at TEXT NOT NULL,
  length     INTEGER NOT NULL,
  head       TEXT NOT NULL,
  epoch      INTEGER NOT NULL,
  abort_by   TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE leases (
  run        TEXT PRIMARY KEY REFERENCES runs (id),
  epoch      INTEGER NOT NULL,
  worker     TEXT NOT NULL,
  machine    TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  born       TEXT NOT NULL,
  expires_at TEXT NOT NULL
) STRICT;

CREATE TABLE events (
  run   TEXT NOT NULL REFERENCES runs (id),
  seq   INTEGER NOT NULL,
  at    TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  kind  TEXT NOT NULL,
  data  BLOB NOT NULL,
  prev  TEXT NOT NULL,
  sum   TEXT NOT NULL,
  PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE receipts (
  run  TEXT NOT NULL REFERENCES runs (id),
  step INTEGER NOT NULL,
  key  TEXT NOT NULL,
  body BLOB NOT NULL,
  PRIMARY KEY (run, step),
  UNIQUE (run, key)
) STRICT;
