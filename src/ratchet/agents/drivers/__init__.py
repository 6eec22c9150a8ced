"""Drivers: how an agent program is run and read: CLI streams, ACP, the line protocol, plain commands, scripts."""
