"""Coding agents: the protocol, an adapter per agent, drivers and the watchdog."""
