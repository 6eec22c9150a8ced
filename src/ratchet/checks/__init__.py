"""Checks: find the tests of a project, run them, and report what happened."""
