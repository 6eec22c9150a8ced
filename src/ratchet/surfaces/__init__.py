"""Ways in: the command line now; HTTP, MCP and the web page later. They translate; they decide nothing."""
