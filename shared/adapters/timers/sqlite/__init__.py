"""The embedded timer engine: timers in one SQLite file, for one process."""
