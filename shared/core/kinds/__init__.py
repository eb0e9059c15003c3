"""Kind rules: how each kind finishes, as data, in words, and as CEL for admission policies."""
