"""Shell completion: a generated index of the commands, so that no command is imported, and values of the cluster."""
