"""Secrets and ConfigMaps to which nothing refers any more: whether each is kept, marked, or deleted."""
