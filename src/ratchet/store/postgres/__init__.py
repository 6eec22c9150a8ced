"""The shared store: PostgreSQL, for many machines."""
