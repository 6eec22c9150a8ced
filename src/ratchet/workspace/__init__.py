"""Workspaces: private copies of a base in which a run's steps happen."""
