"""Kubernetes objects read from a YAML or JSON file."""
