"""What an installation consists of: its defaults, its leader, its rights, and the manifests that a kind needs."""
