-- Who looks at the factory reads what is live or asked for, not all that ever was. No index by status: every claim and
-- completion would pay for it, and SQLite, which plans without counting, would take it where another answers in one probe.
CREATE INDEX workers_live ON workers (started_at) WHERE ended_at = '';
CREATE INDEX runs_item ON runs (item);
CREATE INDEX items_waiting ON items (created_at) WHERE status = 'queued';
