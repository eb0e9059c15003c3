"""Where an installation lives, and where a `run` has its Lease and its state, if nobody said otherwise."""

from shared.safeguards.state_schema import HOME

__all__ = ["HOME", "LEASE", "RUN"]

RUN = "default"
"""That of the Lease of `run`."""

LEASE = "ttl-after-finished"
"""The name of the Lease of a `run`, and of a `standalone`."""
