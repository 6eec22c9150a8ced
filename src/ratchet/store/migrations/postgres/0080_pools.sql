-- Processes that keep workers waiting for items: whether anybody serves the queue.
CREATE TABLE pools (
  machine TEXT COLLATE "C" NOT NULL,
  pid INTEGER NOT NULL,
  born TEXT COLLATE "C" NOT NULL,
  worker TEXT COLLATE "C" NOT NULL,
  workers INTEGER NOT NULL,
  seen_at TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (machine, pid, born)
);
