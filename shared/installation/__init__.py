"""An installation on a cluster: its objects, settings, policy, leader, RBAC rights, and the manifests of a kind."""
