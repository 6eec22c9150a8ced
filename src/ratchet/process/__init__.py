"""Start, supervise and end processes. The only package that starts or kills a process."""
