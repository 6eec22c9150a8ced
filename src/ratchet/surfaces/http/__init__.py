"""The HTTP surface: one table of routes over the desk. It translates; it decides nothing."""
