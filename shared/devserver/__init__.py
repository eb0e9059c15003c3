"""Servers for development, tests and the demo: an embedded API server, and real servers. No function uses it."""
