-- Texts are compared byte by byte, as SQLite does: times and ids are ordered so.
CREATE TABLE items (
  id         TEXT COLLATE "C" PRIMARY KEY,
  repo       TEXT COLLATE "C" NOT NULL,
  source_ref TEXT COLLATE "C" NOT NULL,
  status     TEXT COLLATE "C" NOT NULL,
  rank       BIGINT NOT NULL,
  run        TEXT COLLATE "C",
  created_at TEXT COLLATE "C" NOT NULL,
  body       BYTEA NOT NULL,
  source     TEXT COLLATE "C" NOT NULL DEFAULT '',
  request_key TEXT COLLATE "C" NOT NULL DEFAULT '',
  turn       BIGINT NOT NULL DEFAULT 0,
  attempts   BIGINT NOT NULL DEFAULT 0,
  returns    BIGINT NOT NULL DEFAULT 0,
  not_before TEXT COLLATE "C" NOT NULL DEFAULT '',
  park_reason TEXT COLLATE "C" NOT NULL DEFAULT '',
  detail     TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE runs (
  id         TEXT COLLATE "C" PRIMARY KEY,
  item       TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  status     TEXT COLLATE "C" NOT NULL,
  created_at TEXT COLLATE "C" NOT NULL,
  length     BIGINT NOT NULL,
  head       TEXT COLLATE "C" NOT NULL,
  epoch      BIGINT NOT NULL,
  abort_by   TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE leases (
  run        TEXT COLLATE "C" PRIMARY KEY REFERENCES runs (id),
  epoch      BIGINT NOT NULL,
  worker     TEXT COLLATE "C" NOT NULL,
  machine    TEXT COLLATE "C" NOT NULL,
  pid        BIGINT NOT NULL,
  born       TEXT COLLATE "C" NOT NULL,
  expires_at TEXT COLLATE "C" NOT NULL,
  token_sha256 TEXT COLLATE "C" NOT NULL DEFAULT '',
  id         TEXT COLLATE "C" NOT NULL DEFAULT ''
);

CREATE TABLE events (
  run   TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
  seq   BIGINT NOT NULL,
  at    TEXT COLLATE "C" NOT NULL,
  epoch BIGINT NOT NULL,
  kind  TEXT COLLATE "C" NOT NULL,
  data  BYTEA NOT NULL,
  prev  TEXT COLLATE "C" NOT NULL,
  sum   TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (run, seq)
);

CREATE TABLE receipts (
  run  TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
  step BIGINT NOT NULL,
  key  TEXT COLLATE "C" NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (run, step),
  UNIQUE (run, key)
);

-- One source reference is one piece of work while it is open: asking twice is not two items.
CREATE UNIQUE INDEX items_open ON items (repo, source, source_ref)
  WHERE source_ref <> '' AND status IN ('generating', 'queued', 'assigned', 'in_progress', 'parked');
CREATE UNIQUE INDEX items_asked ON items (request_key) WHERE request_key <> '';
CREATE INDEX items_queue ON items (turn, id) WHERE status = 'queued';
CREATE INDEX items_parked ON items (not_before) WHERE status = 'parked';
CREATE INDEX items_listed ON items (turn, id);

CREATE TABLE needs (
  item TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  need TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  PRIMARY KEY (item, need)
);
CREATE INDEX needs_back ON needs (need);

CREATE INDEX leases_expiry ON leases (expires_at);
CREATE INDEX leases_token ON leases (token_sha256);

CREATE TABLE workers (
  id         TEXT COLLATE "C" PRIMARY KEY,
  name       TEXT COLLATE "C" NOT NULL,
  item       TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  run        TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
  epoch      BIGINT NOT NULL,
  status     TEXT COLLATE "C" NOT NULL,
  started_at TEXT COLLATE "C" NOT NULL,
  beat_at    TEXT COLLATE "C" NOT NULL,
  ended_at   TEXT COLLATE "C" NOT NULL DEFAULT '',
  iteration  BIGINT NOT NULL DEFAULT 0,
  nudges     BIGINT NOT NULL DEFAULT 0,
  detail     TEXT COLLATE "C" NOT NULL DEFAULT '',
  UNIQUE (run, epoch)
);
CREATE INDEX workers_started ON workers (started_at);

-- A lock cannot outlive the lease it was taken under.
CREATE TABLE locks (
  repo TEXT COLLATE "C" NOT NULL,
  path TEXT COLLATE "C" NOT NULL,
  run  TEXT COLLATE "C" NOT NULL REFERENCES leases (run) ON DELETE CASCADE,
  PRIMARY KEY (repo, path, run)
);
CREATE INDEX locks_run ON locks (run);

-- Whole units: millionths of a dollar, milliseconds.
CREATE TABLE reservations (
  id               TEXT COLLATE "C" PRIMARY KEY,
  run              TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
  epoch            BIGINT NOT NULL,
  item             TEXT COLLATE "C" NOT NULL REFERENCES items (id),
  repo             TEXT COLLATE "C" NOT NULL,
  day              TEXT COLLATE "C" NOT NULL,
  status           TEXT COLLATE "C" NOT NULL,
  held_cost_usd    BIGINT NOT NULL,
  held_tokens      BIGINT NOT NULL,
  held_seconds     BIGINT NOT NULL,
  held_iterations  BIGINT NOT NULL,
  spent_cost_usd   BIGINT NOT NULL DEFAULT 0,
  spent_tokens     BIGINT NOT NULL DEFAULT 0,
  spent_seconds    BIGINT NOT NULL DEFAULT 0,
  spent_iterations BIGINT NOT NULL DEFAULT 0
);
CREATE INDEX reservations_item ON reservations (item);
CREATE INDEX reservations_day ON reservations (day, repo);
CREATE INDEX reservations_held ON reservations (run, epoch) WHERE status = 'held';

CREATE INDEX events_iterations ON events (at) WHERE kind = 'red_confirmed';

CREATE TABLE learnings (
  id         TEXT COLLATE "C" PRIMARY KEY,
  repo       TEXT COLLATE "C" NOT NULL,
  run        TEXT COLLATE "C" NOT NULL,
  seq        BIGINT NOT NULL,
  created_at TEXT COLLATE "C" NOT NULL,
  retired_at TEXT COLLATE "C" NOT NULL DEFAULT '',
  body       BYTEA NOT NULL
);
CREATE INDEX learnings_repo ON learnings (repo) WHERE retired_at = '';

CREATE TABLE metrics (
  at    TEXT COLLATE "C" NOT NULL,
  name  TEXT COLLATE "C" NOT NULL,
  run   TEXT COLLATE "C" NOT NULL,
  value DOUBLE PRECISION NOT NULL
);
CREATE INDEX metrics_name ON metrics (name, at);
