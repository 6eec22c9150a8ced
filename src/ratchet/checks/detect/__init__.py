"""Detection: which test runners, commands and gates a project uses."""
