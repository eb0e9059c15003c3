"""How much may be deleted, and how fast: what stands between a due object and its DELETE.

Without a policy file there is no rate and no breaker. Any number for them would be a guess about a cluster that nobody
has seen: too low, it stops a healthy one; too high, it protects from nothing. What is on without being asked for is
the recreate-loop detector: a parent that re-creates what is deleted means work for ever, whatever the cluster's size.
Its default is far from what people do on purpose: a Job that is made anew under the same name every few minutes is
not stopped, one that is back at once, five times in ten minutes, is.
"""

from dataclasses import dataclass, field
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Rate:
    """A token bucket.

    Attributes:
        per_second: Deletions a second in the long run, by one process; more than 0.
        burst: Deletions at once after a rest; at least 1.
    """

    per_second: float
    burst: float = 1.0


@dataclass(frozen=True, slots=True)
class BreakerLimits:
    """What trips the breaker: within `window`, as many deletions, or as large a share of one kind's objects.

    Attributes:
        count: Deletions of all kinds together; None for no such limit.
        share: Of one kind's objects, from 0 to 1; None for no such limit.
        at_least: Deletions of a kind up to which its share is of no interest: the half of four objects is two.
        window: How long a deletion counts.
    """

    count: int | None = None
    share: float | None = None
    at_least: int = 100
    window: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class RecreationLimits:
    """What is a recreate loop: a name that we deleted so often within `window`, and that is back under a new uid.

    Attributes:
        times: Deletions under one name; 0 turns the detector off.
        window: How long a deletion counts, and how long the name is left alone then.
    """

    times: int = 5
    window: timedelta = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Limits:
    """All of them.

    Attributes:
        everywhere: The rate of all deletions of a process; None for as fast as it goes.
        per_namespace: The rate in each namespace; None as above.
    """

    everywhere: Rate | None = None
    per_namespace: Rate | None = None
    breaker: BreakerLimits = field(default=BreakerLimits())
    recreation: RecreationLimits = field(default=RecreationLimits())


NO_LIMITS = Limits(recreation=RecreationLimits(times=0))
"""Nothing stands in the way."""
