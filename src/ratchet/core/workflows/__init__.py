"""Workflows: one table each. `workflow` defines what a table is."""
