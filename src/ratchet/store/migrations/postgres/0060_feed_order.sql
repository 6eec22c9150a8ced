-- A place in the feed is `base` + transaction id. A restore into another cluster begins a new generation with a higher
-- base, since transaction ids begin anew there: places never go back.
CREATE TABLE feed_generation (
  id      BIGINT PRIMARY KEY CHECK (id = 1),
  base    BIGINT NOT NULL,
  cluster TEXT COLLATE "C" NOT NULL
);
INSERT INTO feed_generation VALUES (1, 0, '');
