"""Store items, runs, ledgers, receipts and leases behind verbs of the domain."""
