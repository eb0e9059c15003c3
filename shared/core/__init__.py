"""The pure core: decisions about objects, without a clock, I/O or a client library."""
