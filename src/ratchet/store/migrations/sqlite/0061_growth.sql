-- The name of an item's branch and workspace, to find the item of a workspace that was left behind.
ALTER TABLE items ADD COLUMN slug TEXT NOT NULL DEFAULT '';
UPDATE items SET slug = COALESCE(json_extract(CAST(body AS TEXT), '$.slug'), '');
CREATE INDEX items_slug ON items (slug);

-- The state folded from a ledger up to `seq`, so that a claim reads only what follows. Derived: may be deleted.
CREATE TABLE checkpoints (
  run     TEXT PRIMARY KEY,
  seq     INTEGER NOT NULL,
  sum     TEXT NOT NULL,
  version TEXT NOT NULL,
  state   BLOB NOT NULL
) STRICT, WITHOUT ROWID;
