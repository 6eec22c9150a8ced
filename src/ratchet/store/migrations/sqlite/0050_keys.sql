-- The key of the last report of no progress: a report that is sent again counts once.
ALTER TABLE workers ADD COLUMN nudge_key TEXT NOT NULL DEFAULT '';

CREATE INDEX reservations_run ON reservations (run);
