-- Listed by expressions, so that only lists can use this index: a claim whose plan was made before anything was completed
-- took it for as good as its own, and from then on read past all that ever was completed.
DROP INDEX items_listed;
CREATE INDEX items_listed ON items ((turn + 0), (id || ''));
