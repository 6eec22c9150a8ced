"""Interfaces: command line, HTTP and MCP. They translate requests and answers; they decide nothing."""
