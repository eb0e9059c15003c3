"""Store objects in archives, find and remove what is stored: the parts of `archive`, `restore` and `usage`."""
