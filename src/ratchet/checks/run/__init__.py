"""Running: execute targets and read their results into one report."""
