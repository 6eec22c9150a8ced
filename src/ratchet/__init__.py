"""Ratchet: a software factory for coding agents that turns one way only."""

__version__ = "0.1.0"
