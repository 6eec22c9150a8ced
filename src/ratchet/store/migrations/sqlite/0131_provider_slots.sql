-- How many agents of one provider work at once, over all hosts. A slot counts while the lease it was taken under is live.
CREATE TABLE provider_limits (
  provider   TEXT PRIMARY KEY,
  "limit"    INTEGER NOT NULL,
  changed_at REAL NOT NULL,
  refused_at REAL NOT NULL
);
CREATE TABLE provider_slots (
  id       TEXT PRIMARY KEY,
  provider TEXT NOT NULL,
  run      TEXT NOT NULL,
  epoch    INTEGER NOT NULL,
  taken_at REAL NOT NULL
);
CREATE INDEX provider_slots_held ON provider_slots (provider);
