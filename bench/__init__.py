"""Measurements, not tests: `python -m bench [name…]` runs the modules here that have a `main`."""
