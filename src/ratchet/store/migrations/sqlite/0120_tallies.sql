-- Figures, folded from the ledgers: small additive tallies of each run by quarter of an hour. Derived: may be deleted.
CREATE TABLE tallies (
  run            TEXT NOT NULL,
  slot           TEXT NOT NULL,
  repo           TEXT NOT NULL,
  workflow       TEXT NOT NULL,
  worker         TEXT NOT NULL,
  iteration      INTEGER NOT NULL,
  action         TEXT NOT NULL,
  role           TEXT NOT NULL,
  agent          TEXT NOT NULL,
  model          TEXT NOT NULL,
  runs           INTEGER NOT NULL DEFAULT 0,
  completed      INTEGER NOT NULL DEFAULT 0,
  failed         INTEGER NOT NULL DEFAULT 0,
  aborted        INTEGER NOT NULL DEFAULT 0,
  completion_ms  INTEGER NOT NULL DEFAULT 0,
  requeued       INTEGER NOT NULL DEFAULT 0,
  recoveries     INTEGER NOT NULL DEFAULT 0,
  iterations     INTEGER NOT NULL DEFAULT 0,
  steps          INTEGER NOT NULL DEFAULT 0,
  step_ms        INTEGER NOT NULL DEFAULT 0,
  commits        INTEGER NOT NULL DEFAULT 0,
  undone         INTEGER NOT NULL DEFAULT 0,
  reverts        INTEGER NOT NULL DEFAULT 0,
  overfitted     INTEGER NOT NULL DEFAULT 0,
  refused_tests  INTEGER NOT NULL DEFAULT 0,
  false_done     INTEGER NOT NULL DEFAULT 0,
  greens         INTEGER NOT NULL DEFAULT 0,
  green_attempts INTEGER NOT NULL DEFAULT 0,
  calls          INTEGER NOT NULL DEFAULT 0,
  unpriced_calls INTEGER NOT NULL DEFAULT 0,
  tokens_in      INTEGER NOT NULL DEFAULT 0,
  tokens_out     INTEGER NOT NULL DEFAULT 0,
  tokens_cached  INTEGER NOT NULL DEFAULT 0,
  cost_microusd  INTEGER NOT NULL DEFAULT 0,
  agent_ms       INTEGER NOT NULL DEFAULT 0,
  workspaces     INTEGER NOT NULL DEFAULT 0,
  workspace_ms   INTEGER NOT NULL DEFAULT 0,
  quota_waits    INTEGER NOT NULL DEFAULT 0,
  quota_ms       INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run, slot, worker, iteration, action, role, agent, model)
) STRICT;
CREATE INDEX tallies_slot ON tallies (slot);

-- How far each run is counted, and what counting its next event needs to know of the events before.
CREATE TABLE tallied_runs (
  run  TEXT PRIMARY KEY,
  seq  INTEGER NOT NULL,
  past TEXT NOT NULL
) STRICT;

-- The place in the feed up to which all runs are counted, and the version of the code that counted.
CREATE TABLE tallied_feed (
  id      INTEGER PRIMARY KEY CHECK (id = 1),
  place   TEXT NOT NULL,
  version INTEGER NOT NULL
) STRICT;
INSERT INTO tallied_feed VALUES (1, '', 0);

-- It never had a writer.
DROP TABLE metrics;
