"""The Model Context Protocol: the same verbs for agents, over stdio and over HTTP."""
