-- Completed items with doubtful findings, which a person reviews: the inbox lists them.
CREATE INDEX items_to_review ON items (park_reason, id) WHERE status = 'completed' AND park_reason = 'review';
