"""The engine: executes a run step by step, within its budget and the limits of its providers."""
