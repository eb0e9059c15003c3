"""References to Secrets and ConfigMaps: which fields of which objects name them."""
