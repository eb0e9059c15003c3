"""Who deletes on a cluster: the installation and each `run`, the policy they use, and what stops them."""
