-- A worker can still be known by its token when its lease is over: what it says twice is then heard as said once.
ALTER TABLE workers ADD COLUMN token_sha256 TEXT NOT NULL DEFAULT '';
CREATE INDEX workers_token ON workers (token_sha256);
UPDATE workers SET token_sha256 = COALESCE((SELECT token_sha256 FROM leases WHERE leases.id = workers.id), '');

-- The feed: all events of all runs in one order that never changes. There is one writer at a time, so the order of
-- numbers is the order of commits.
CREATE TABLE feed_order (
  place INTEGER PRIMARY KEY AUTOINCREMENT,
  run   TEXT NOT NULL,
  seq   INTEGER NOT NULL
) STRICT;
INSERT INTO feed_order (run, seq) SELECT run, seq FROM events ORDER BY at, run, seq;
CREATE TRIGGER events_feed AFTER INSERT ON events BEGIN INSERT INTO feed_order (run, seq) VALUES (NEW.run, NEW.seq); END;
CREATE VIEW feed AS
  SELECT place, events.* FROM feed_order JOIN events ON events.run = feed_order.run AND events.seq = feed_order.seq;

CREATE INDEX events_told ON events (at) WHERE kind IN
  ('run_completed', 'run_failed', 'run_aborted', 'run_returned', 'red_confirmed', 'step_committed', 'step_reverted');
CREATE INDEX runs_newest ON runs (created_at, id);
