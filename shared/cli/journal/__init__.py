"""What the commands read from the journal."""
