"""The reasons of obstacles, beside those of the safeguards; docs/reference/reasons.md is made from them."""

DRY_RUN = "dry-run"
"""The process or the installation is a dry run.

Run it without `--dry-run`, or apply the installation with `TTL_DRY_RUN=false`.
"""
NOT_ENABLED = "kind-not-enabled"
"""The installation, or the `run` that leads, does not handle the kind.

Add the kind to `TTL_KINDS` or `--kinds`.
"""
OTHER_NAMESPACE = "namespace-not-enabled"
"""The `run` that leads handles only another namespace.

Run it without `--namespace`, or start another one with its own `--lease-namespace`.
"""
NO_DELETER = "no-active-deleter"
"""There is no active deleter: nothing is installed, and no `run` holds the Lease.

Start `ttl-after-finished run`, or install ttl-after-finished. If it is in another namespace, set `TTL_NAMESPACE`.
"""
STALE_GUARD = "delete-guard-stale"
"""The API server may refuse the DELETE: the admission policy of the kind differs from the kind rule.

Apply the output of `kubectl ttl kinds manifests KIND --only guard`.
"""
