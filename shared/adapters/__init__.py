"""Adapters: the only modules that import a client library, or read a file, the network or the clock."""
