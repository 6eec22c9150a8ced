"""The store behind a Ratchet server: for workers on hosts without database credentials."""
