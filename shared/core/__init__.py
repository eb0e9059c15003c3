"""The pure core: no clock, no I/O, no client library."""
