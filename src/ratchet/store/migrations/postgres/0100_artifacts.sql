-- Prompts, answers, reports: content-addressed within a run, so that any host has them and nothing overwrites another.
CREATE TABLE artifacts (
    run TEXT COLLATE "C" NOT NULL,
    sha256 TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    content BYTEA NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (run, sha256)
);
