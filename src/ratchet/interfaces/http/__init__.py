"""The HTTP API: a table of routes over the queue and workspace services. No business logic."""
