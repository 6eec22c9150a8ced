"""The use case of `ratchet backtest`: mines tasks from a repository's history and compares agents on them."""
