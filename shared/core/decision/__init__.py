"""Decide about the TTL of one object: `decide`, and the facts and reasons of all decisions."""
