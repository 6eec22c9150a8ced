-- The name of an item's branch and workspace, to find the item of a workspace that was left behind.
ALTER TABLE items ADD COLUMN slug TEXT COLLATE "C" NOT NULL DEFAULT '';
UPDATE items SET slug = COALESCE(CAST(convert_from(body, 'UTF8') AS JSONB) ->> 'slug', '');
CREATE INDEX items_slug ON items USING hash (slug);

-- The state folded from a ledger up to `seq`, so that a claim reads only what follows. Derived: may be deleted.
CREATE TABLE checkpoints (
  run     TEXT COLLATE "C" PRIMARY KEY,
  seq     BIGINT NOT NULL,
  sum     TEXT COLLATE "C" NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  state   BYTEA NOT NULL
);
