"""For development, tests and the demo: an embedded API server, and real servers on loopback. Not in the image."""
