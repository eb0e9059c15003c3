"""Evaluate objects: read the facts that `decide` needs beside the object (namespace, owner, rank, served kinds)."""
