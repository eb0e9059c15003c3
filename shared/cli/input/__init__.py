"""What a command gets: its options, the objects and kinds that its arguments name, files, and a cluster."""
