-- Processes that keep workers waiting for items: whether anybody serves the queue.
CREATE TABLE pools (
  machine TEXT NOT NULL,
  pid INTEGER NOT NULL,
  born TEXT NOT NULL,
  worker TEXT NOT NULL,
  workers INTEGER NOT NULL,
  seen_at TEXT NOT NULL,
  PRIMARY KEY (machine, pid, born)
);
