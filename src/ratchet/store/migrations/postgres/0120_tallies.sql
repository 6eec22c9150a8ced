-- Figures, folded from the ledgers: small additive tallies of each run by quarter of an hour. Derived: may be deleted.
CREATE TABLE tallies (
  run            TEXT COLLATE "C" NOT NULL,
  slot           TEXT COLLATE "C" NOT NULL,
  repo           TEXT COLLATE "C" NOT NULL,
  workflow       TEXT COLLATE "C" NOT NULL,
  worker         TEXT COLLATE "C" NOT NULL,
  iteration      BIGINT NOT NULL,
  action         TEXT COLLATE "C" NOT NULL,
  role           TEXT COLLATE "C" NOT NULL,
  agent          TEXT COLLATE "C" NOT NULL,
  model          TEXT COLLATE "C" NOT NULL,
  runs           BIGINT NOT NULL DEFAULT 0,
  completed      BIGINT NOT NULL DEFAULT 0,
  failed         BIGINT NOT NULL DEFAULT 0,
  aborted        BIGINT NOT NULL DEFAULT 0,
  completion_ms  BIGINT NOT NULL DEFAULT 0,
  requeued       BIGINT NOT NULL DEFAULT 0,
  recoveries     BIGINT NOT NULL DEFAULT 0,
  iterations     BIGINT NOT NULL DEFAULT 0,
  steps          BIGINT NOT NULL DEFAULT 0,
  step_ms        BIGINT NOT NULL DEFAULT 0,
  commits        BIGINT NOT NULL DEFAULT 0,
  undone         BIGINT NOT NULL DEFAULT 0,
  reverts        BIGINT NOT NULL DEFAULT 0,
  overfitted     BIGINT NOT NULL DEFAULT 0,
  refused_tests  BIGINT NOT NULL DEFAULT 0,
  false_done     BIGINT NOT NULL DEFAULT 0,
  greens         BIGINT NOT NULL DEFAULT 0,
  green_attempts BIGINT NOT NULL DEFAULT 0,
  calls          BIGINT NOT NULL DEFAULT 0,
  unpriced_calls BIGINT NOT NULL DEFAULT 0,
  tokens_in      BIGINT NOT NULL DEFAULT 0,
  tokens_out     BIGINT NOT NULL DEFAULT 0,
  tokens_cached  BIGINT NOT NULL DEFAULT 0,
  cost_microusd  BIGINT NOT NULL DEFAULT 0,
  agent_ms       BIGINT NOT NULL DEFAULT 0,
  workspaces     BIGINT NOT NULL DEFAULT 0,
  workspace_ms   BIGINT NOT NULL DEFAULT 0,
  quota_waits    BIGINT NOT NULL DEFAULT 0,
  quota_ms       BIGINT NOT NULL DEFAULT 0,
  PRIMARY KEY (run, slot, worker, iteration, action, role, agent, model)
);
CREATE INDEX tallies_slot ON tallies (slot);

-- How far each run is counted, and what counting its next event needs to know of the events before.
CREATE TABLE tallied_runs (
  run  TEXT COLLATE "C" PRIMARY KEY,
  seq  BIGINT NOT NULL,
  past TEXT COLLATE "C" NOT NULL
);

-- The place in the feed up to which all runs are counted, and the version of the code that counted.
CREATE TABLE tallied_feed (
  id      BIGINT PRIMARY KEY CHECK (id = 1),
  place   TEXT COLLATE "C" NOT NULL,
  version BIGINT NOT NULL
);
INSERT INTO tallied_feed VALUES (1, '', 0);

-- It never had a writer.
DROP TABLE metrics;
