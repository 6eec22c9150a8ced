"""Backtests: tasks mined from a repository's history, what agents made of them, and which did best. Pure."""
