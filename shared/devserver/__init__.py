"""Servers for development, tests and the demo: an embedded API server, and real servers. Not in the image."""
