"""Selection: which tests to run, and in which order."""
