-- Labels that an item's worker must have, and those that workers have: each between two newlines.
ALTER TABLE items ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE workers ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE pools ADD COLUMN labels TEXT COLLATE "C" NOT NULL DEFAULT '';
CREATE INDEX items_labelled ON items (labels) WHERE status = 'queued';
