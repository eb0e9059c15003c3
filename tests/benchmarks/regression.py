"""`make bench-guard`: fails if a deletion takes much more processor time than it did when `RECORDED` was written.

Processor time of this project's process for each deletion, by that of the bare client in the same run: the ratio
depends much less on the machine than a rate does. `FACTOR` is for the rest. On a machine with a load far above its
cores the ratio grows nevertheless, because what `run` does each second is then shared by few deletions.
"""

from collections.abc import Iterable, Mapping, Sequence

from tests.benchmarks.drain import Drained
from tests.benchmarks.drain_report import cpu_share

RECORDED: Mapping[str, float] = {"sweep": 3.8, "events": 5.9}
"""Medians of `python -m tests.benchmarks --only drain`. If a change makes them better, write the better ones here."""

FACTOR = 1.5
"""For the noise of a machine without other work; a busy machine makes more."""


def regressions(drains: Mapping[str, Sequence[Drained]]) -> Iterable[str]:
    """One sentence for each path that takes more than the recorded ratio allows."""
    for name, recorded in RECORDED.items():
        measured, most = cpu_share(drains[name]), FACTOR * recorded
        if measured > most:
            yield (
                f"our {name}: CPU a deletion is {measured:.2f} times that of the bare client. Expected at most "
                f"{most:.2f}: the recorded {recorded:g}, times {FACTOR:g}. Measure again without other work; then "
                "profile the change, or record the new ratio"
            )
