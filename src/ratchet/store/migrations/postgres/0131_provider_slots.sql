-- How many agents of one provider work at once, over all hosts. A slot counts while the lease it was taken under is live.
CREATE TABLE provider_limits (
  provider   TEXT COLLATE "C" PRIMARY KEY,
  "limit"    BIGINT NOT NULL,
  changed_at DOUBLE PRECISION NOT NULL,
  refused_at DOUBLE PRECISION NOT NULL
);
CREATE TABLE provider_slots (
  id       TEXT COLLATE "C" PRIMARY KEY,
  provider TEXT COLLATE "C" NOT NULL,
  run      TEXT COLLATE "C" NOT NULL,
  epoch    BIGINT NOT NULL,
  taken_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX provider_slots_held ON provider_slots (provider);
