"""Everything on one machine: the runner, its broker, and the embedded API server."""
