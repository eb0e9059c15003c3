"""The tables and the aims of the drain and of the lateness: every ratio of every round, and their medians."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from rich.table import Table

from tests.benchmarks.drain import CONTENDERS, LIMIT, UNSTEADY, WARM_UP, Drained
from tests.benchmarks.lateness import PER_SECOND, Lateness
from tests.benchmarks.tables import Aim, calls, new_table, rate

LATE_TITLES = {"events": "our events", "peer": "the peer, tuned", "floor": "DELETEs at their due times: the floor"}
SHARES = {"sweep": 0.85, "events": 0.65}
"""The aims: a rate by that of the limit."""

CPU_AIM = 2.0
GETS_AIM = 0.01
FLOOR_AIM = 1.2

Drains = Mapping[str, Sequence[Drained]]
LateRounds = Mapping[str, Sequence[Lateness]]


def share(drained: Sequence[Drained]) -> float:
    """The median over the rounds of the rate by that of the limit."""
    return median(one.of_limit for one in drained)


def cpu_share(drained: Sequence[Drained]) -> float:
    """The median over the rounds of the processor time a deletion by that of the limit's client."""
    return median(one.cpu_of_limit for one in drained)


def drain_aims(drains: Drains) -> Iterable[Aim]:
    """Those of the sweep and of the event path."""
    for name, least in SHARES.items():
        measured = share(drains[name])
        yield Aim(f"our {name} / the limit", f">= {least:g}", f"{measured:.2f}", measured >= least)
    for name in SHARES:
        measured = cpu_share(drains[name])
        title = f"our {name}: CPU a deletion / the limit's client's"
        yield Aim(title, f"<= {CPU_AIM:g}", f"{measured:.2f}", measured <= CPU_AIM)
    for name in SHARES:
        most = max(one.gets for one in drains[name])
        yield Aim(f"our {name}: GETs of objects a deletion", f"< {GETS_AIM:.0%}", f"{most:.1%}", most < GETS_AIM)


def lateness_aims(late: LateRounds) -> Iterable[Aim]:
    """By the peer of the same round, and by the floor of the same round."""
    for name, title, most in (("peer", "the tuned peer's", 1.0), ("floor", "the floor's", FLOOR_AIM)):
        measured = median(_ratios(late, name))
        aim = f"lateness p99 at {PER_SECOND} due a second / {title}"
        yield Aim(aim, f"<= {most:g}", f"{measured:.2f}", measured <= most)


def _ratios(late: LateRounds, name: str) -> list[float]:
    return [ours.p99 / theirs.p99 for ours, theirs in zip(late["events"], late[name], strict=True)]


def drain_table(drains: Drains) -> Table:
    table = new_table(
        "Drain of expired Jobs",
        "",
        "Jobs",
        "times",
        "a second",
        "from - to",
        "of the limit",
        "calls a deletion",
        "GETs",
        "CPU ms a deletion",
        "of the limit's",
        "CPU ms a Job before",
        "CPU ms of the start",
        caption="Medians. Each is compared to the limit right before and after it. CPU: of the contender's own "
        "process; the API server shares its cores. Before: from the creation of a Job until the clock starts. Start: "
        f"of the process and a warm-up of {WARM_UP} Jobs, not counted in the rest. The peer as it comes: QPS 20, burst "
        "30. Tuned: QPS 5000, burst 10000, 50 workers for each controller.",
    )
    for contender in (LIMIT, *CONTENDERS):
        if not (rounds := drains.get(contender.name)):
            continue
        rates = [one.per_second for one in rounds]
        table.add_row(
            contender.title,
            f"{rounds[0].jobs:,}",
            f"{len(rounds)}",
            rate(median(rates)),
            f"{rate(min(rates))} - {rate(max(rates))}",
            f"{share(rounds):.0%}",
            calls(rounds[-1].calls),
            f"{median(one.gets for one in rounds):.1%}",
            f"{median(one.cpu_ms for one in rounds):.2f}",
            f"x {cpu_share(rounds):.2f}",
            f"{median(one.before_ms for one in rounds):.2f}",
            f"{median(one.start_ms for one in rounds):,.0f}",
        )
    return table


def rounds_table(drains: Drains) -> Table:
    """Every ratio, in the order of the rounds."""
    table = new_table(
        "Each round: of the limit's rate, and CPU a deletion of the limit's client",
        "",
        *(f"round {number + 1}" for number in range(max(map(len, _beside(drains).values()), default=0))),
        caption=f"*: the limits right before and right after it differ by more than {UNSTEADY - 1:.0%}.",
    )
    for name, rounds in _beside(drains).items():
        title = next(one.title for one in CONTENDERS if one.name == name)
        marks = ["" if one.is_steady else " *" for one in rounds]
        cells = (f"{one.of_limit:.0%}, x {one.cpu_of_limit:.2f}{mark}" for one, mark in zip(rounds, marks, strict=True))
        table.add_row(title, *cells)
    return table


def _beside(drains: Drains) -> Drains:
    return {name: rounds for name, rounds in drains.items() if name != LIMIT.name}


def lateness_table(late: LateRounds) -> Table:
    ratios = {name: _ratios(late, name) for name in ("peer", "floor")}
    table = new_table(
        f"Lateness: DELETE accepted - due, {PER_SECOND} Jobs due at each whole second",
        "",
        "Jobs",
        "p50 ms",
        "p99 ms",
        "max ms",
        "our p99 by its p99, each round",
        caption="From the API server's audit log, for all. The peer's is when the object was marked (Foreground). The "
        "floor: a client that knows each Job and its due time beforehand.",
    )
    for name, title in LATE_TITLES.items():
        values = [f"{median(getattr(one, field) for one in late[name]):.1f}" for field in ("p50", "p99", "most")]
        shown = ", ".join(f"{one:.2f}" for one in ratios.get(name, ()))
        table.add_row(title, f"{sum(one.jobs for one in late[name]):,}", *values, shown)
    return table
