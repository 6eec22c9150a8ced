-- What learnings are filtered by, and what became of them.
ALTER TABLE learnings
  ADD COLUMN spec TEXT NOT NULL DEFAULT '',
  ADD COLUMN tags TEXT NOT NULL DEFAULT '',
  ADD COLUMN kind TEXT COLLATE "C" NOT NULL DEFAULT 'lesson',
  ADD COLUMN merged_into TEXT COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN retired_by TEXT NOT NULL DEFAULT '',
  ADD COLUMN retired_why TEXT NOT NULL DEFAULT '',
  ADD COLUMN lift DOUBLE PRECISION;

UPDATE learnings SET spec = COALESCE(convert_from(body, 'UTF8')::json ->> 'spec', ''), tags = COALESCE(
  chr(10) || array_to_string(ARRAY(
    SELECT json_array_elements_text(convert_from(body, 'UTF8')::json -> 'tags')), chr(10)) || chr(10), '');

-- Each run, person or agent that came to a learning; only added to.
CREATE TABLE learning_sightings (
  learning TEXT COLLATE "C" NOT NULL,
  id       TEXT COLLATE "C" NOT NULL,
  run      TEXT COLLATE "C" NOT NULL,
  at       TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (learning, id)
);
CREATE TABLE learning_failures (
  fingerprint TEXT COLLATE "C" NOT NULL,
  learning    TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (fingerprint, learning)
);

-- In how many learnings a word is: a search leaves out the words that most of them have.
CREATE TABLE learning_terms (
  term  TEXT COLLATE "C" PRIMARY KEY,
  count BIGINT NOT NULL
);

-- The vectors have a table of their own, which is created when pgvector is there.
CREATE TABLE learning_embedders (
  id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name       TEXT COLLATE "C" NOT NULL UNIQUE,
  dimensions BIGINT NOT NULL
);
CREATE INDEX learnings_live ON learnings (created_at) WHERE retired_at = '' AND merged_into = '';

-- What followed each delivery of a learning, and each time it was held out: derived from the ledger when a run ends.
CREATE TABLE learning_trials (
  learning TEXT COLLATE "C" NOT NULL,
  run      TEXT COLLATE "C" NOT NULL,
  seq      BIGINT NOT NULL,
  arm      TEXT COLLATE "C" NOT NULL,
  attempts BIGINT NOT NULL,
  repeats  BIGINT NOT NULL,
  reverts  BIGINT NOT NULL,
  cost_usd DOUBLE PRECISION NOT NULL,
  green    BIGINT NOT NULL,
  at       TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (learning, run, seq)
);
