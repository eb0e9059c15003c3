"""The use case of `usage`, which deletes unused Secrets and ConfigMaps: its tick, and the parts of it."""
