"""References to Secrets and ConfigMaps, and what is unused: what the commands share."""
