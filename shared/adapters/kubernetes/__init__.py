"""The Kubernetes API: connection, requests, discovery, watches, and what its answers mean."""
