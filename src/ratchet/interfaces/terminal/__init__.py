"""Text for terminals: tables, test results, live views and colour."""
