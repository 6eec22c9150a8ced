-- Prompts, answers, reports: content-addressed within a run, so that any host has them and nothing overwrites another.
CREATE TABLE artifacts (
    run TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    size INTEGER NOT NULL,
    content BLOB NOT NULL,
    created_at TEXT NOT NULL,
    PRIMARY KEY (run, sha256)
) WITHOUT ROWID;
