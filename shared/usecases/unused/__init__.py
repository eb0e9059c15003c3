"""The parts of `usage`, which deletes unused Secrets and ConfigMaps."""
