"""The Kubernetes API: connection, requests, discovery, watches, and the meaning of its answers."""
