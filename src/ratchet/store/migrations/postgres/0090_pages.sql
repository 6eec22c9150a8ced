-- What a board shows of a run, in one short string that each append brings up to date.
ALTER TABLE runs ADD COLUMN card TEXT COLLATE "C" NOT NULL DEFAULT '';

-- Entries of the inbox that somebody has seen: until a time, or (empty) for good.
CREATE TABLE snoozes (
  entry TEXT COLLATE "C" PRIMARY KEY,
  until TEXT COLLATE "C" NOT NULL,
  by    TEXT COLLATE "C" NOT NULL,
  at    TEXT COLLATE "C" NOT NULL
);

-- A board lists the newest of what has ended. Partial: moves between open statuses do not pay for it.
CREATE INDEX items_ended ON items (status, id) WHERE status IN ('completed', 'failed', 'cancelled');
