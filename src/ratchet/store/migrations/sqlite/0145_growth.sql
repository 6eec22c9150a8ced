-- Which finished runs still have to be read for learnings: found without a look at all runs.
ALTER TABLE runs ADD COLUMN learnt INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET learnt = 1 WHERE id IN (SELECT id FROM learning_sightings WHERE learning = '');
DELETE FROM learning_sightings WHERE learning = '';
CREATE INDEX runs_unlearnt ON runs (id) WHERE status <> 'running' AND learnt = 0;
