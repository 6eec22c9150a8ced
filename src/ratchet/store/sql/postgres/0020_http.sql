-- A worker can still be known by its token when its lease is over: what it says twice is then heard as said once.
ALTER TABLE workers ADD COLUMN token_sha256 TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX workers_token ON workers (token_sha256);
UPDATE workers SET token_sha256 = leases.token_sha256 FROM leases WHERE leases.id = workers.id;

-- The feed: all events of all runs in one order that never changes. Transactions commit in another order than they
-- began, so the view ends before the oldest one that is still open: nothing can appear before what was seen.
ALTER TABLE events ADD COLUMN place BIGINT NOT NULL DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX events_feed ON events (place, run, seq);
CREATE VIEW feed AS
  SELECT place, run, seq, at, epoch, kind, data, prev, sum FROM events
  WHERE place < pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

CREATE INDEX events_told ON events (at) WHERE kind IN
  ('run_completed', 'run_failed', 'run_aborted', 'run_returned', 'red_confirmed', 'step_committed', 'step_reverted');
CREATE INDEX runs_newest ON runs (created_at, id);
