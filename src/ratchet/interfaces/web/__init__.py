"""The web pages: server-rendered HTML over the queue service, live by one event stream."""
