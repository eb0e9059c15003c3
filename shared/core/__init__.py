"""The pure core: it decides whether an object may be deleted, without a clock, I/O or a client library."""
