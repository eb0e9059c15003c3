"""The TTL that an object sets by its annotations and fields, and the edits of them by commands."""
