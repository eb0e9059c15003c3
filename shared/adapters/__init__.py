"""The only modules that import a client library or touch the world outside the process."""
