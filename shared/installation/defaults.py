"""Default namespaces and the Lease name of an installation and of `run`."""

from shared.safeguards.state_schema import HOME

__all__ = ["HOME", "LEASE", "RUN"]

RUN = "default"
"""The default namespace of the Lease of `run`."""

LEASE = "ttl-after-finished"
"""The name of the Lease of `run` and of the Deployment `standalone`."""
