"""Kind rules: how a kind finishes, as data, in words, and as CEL for admission policies."""
