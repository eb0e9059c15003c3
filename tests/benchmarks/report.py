"""The tables and the JSON: what was measured, and the aims beside it.

Ratios are of what was measured next to each other, and the median over the rounds counts: absolute rates are of this
machine at this hour.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import bench_timers
from tests.benchmarks.coldstart import LIMITS, STARTS, ColdStart
from tests.benchmarks.deadlines import PER_SECOND as STOPS_PER_SECOND
from tests.benchmarks.deadlines import Stopped
from tests.benchmarks.decide import Decisions
from tests.benchmarks.drain_report import drain_aims, drain_table, lateness_aims, lateness_table, rounds_table
from tests.benchmarks.guard import FOLDERS, WAYS, Cost
from tests.benchmarks.plan import AIM_SECONDS, OBJECTS, Timed, ratio
from tests.benchmarks.scale import Figure
from tests.benchmarks.schedule import Slice
from tests.benchmarks.tables import Aim, new_table
from tests.benchmarks.trainjobs import Slo

STOP_TITLES = {"ours": "ours, by a patch at the deadline", "peer": "the Job controller, by activeDeadlineSeconds"}
STOP_LIMIT_MS, STOP_AIM_MS = 5_000, 1_000
"""The limit of the design document, and our aim."""
MILLION = 1_000_000


def aims(results: Mapping[str, Any]) -> list[Aim]:
    """Those that this run can tell of."""
    return [
        *(drain_aims(results["drain"]) if "drain" in results else ()),
        *(lateness_aims(results["lateness"]) if "lateness" in results else ()),
        *(_deadlines_aims(results["deadlines"]) if "deadlines" in results else ()),
        *(_timers_aims(results["timers"]) if "timers" in results else ()),
        *(_schedule_aims(results["schedule"]) if "schedule" in results else ()),
        *(_decide_aims(results["decide"]) if "decide" in results else ()),
        *(_plan_aims(results["plan"]) if "plan" in results else ()),
        *(_guard_aims(results["guard"]) if "guard" in results else ()),
        *(_trainjobs_aims(results["trainjobs"]) if "trainjobs" in results else ()),
        *(_scale_aims(results["scale"]) if "scale" in results else ()),
    ]


def _deadlines_aims(stopped: Mapping[str, Sequence[Stopped]]) -> Iterable[Aim]:
    """The worst round counts."""
    ours = stopped["ours"]
    p99, earliest = max(one.p99 for one in ours), min(one.earliest for one in ours)
    name = f"lateness p99 of a stop at {STOPS_PER_SECOND} deadlines a second"
    yield Aim(name, f"<= {STOP_AIM_MS:,} ms", f"{p99:.0f} ms", p99 <= STOP_AIM_MS)
    yield Aim("the earliest stop, after its deadline", ">= 0 ms", f"{earliest:.1f} ms", earliest >= 0)


def _timers_aims(sizes: Sequence[Mapping[str, Any]]) -> Iterable[Aim]:
    for size in sizes:
        if size["timers"] == MILLION:
            yield Aim("RSS with a million timers", "< 100 MB", f"{size['rss_mb']:.0f} MB", size["rss_mb"] < 100)


def _schedule_aims(slices: Mapping[str, Sequence[Slice]]) -> Iterable[Aim]:
    measured = median(one.per_second for one in slices["schedule"])
    yield Aim("`schedule` on one core", ">= 3000 events/s", f"{measured:.0f}", measured >= 3_000)


def _decide_aims(measured: Mapping[str, Sequence[Decisions]]) -> Iterable[Aim]:
    """The slowest of each sort counts."""
    for name, with_cel, least in (("without CEL", False, 50_000), ("with CEL", True, 10_000)):
        slowest = min(one.per_second for one in measured["decide"] if ("CEL" in one.case) is with_cel)
        yield Aim(f"`decide` on one core, {name}", f">= {least} a second", f"{slowest}", slowest >= least)


def _plan_aims(timed: Mapping[str, Sequence[Timed]]) -> Iterable[Aim]:
    measured = median(one.seconds for one in timed["plan"])
    aim = f"< {AIM_SECONDS:.0f} s"
    yield Aim(f"`plan --policy` on {OBJECTS:,} objects", aim, f"{measured:.1f} s", measured < AIM_SECONDS)


def _guard_aims(costs: Mapping[str, Sequence[Cost]]) -> Iterable[Aim]:
    for kind in FOLDERS:
        measured = _times(costs, "enabled", kind)
        yield Aim(
            f"API server CPU a guarded DELETE of a {kind} / an unguarded one", "<= 2", f"{measured:.2f}", measured <= 2
        )


def _trainjobs_aims(measured: Mapping[str, Sequence[Slo]]) -> Iterable[Aim]:
    for one in measured["slos"]:
        aim = f"{'<' if one.is_most else '>='} {_number(one.limit)}"
        yield Aim(f"KEP-2899: {one.name}", f"{aim} {one.unit}".strip(), _number(one.measured), one.better > 1)


def _scale_aims(measured: Mapping[str, Sequence[Figure]]) -> Iterable[Aim]:
    for one in measured["figures"]:
        if one.most is not None:
            yield Aim(one.name, f"<= {one.most:g} {one.unit}", f"{one.value:.2f} {one.unit}", one.value <= one.most)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _times(costs: Mapping[str, Sequence[Cost]], way: str, kind: str) -> float:
    """How many times the processor time of an unguarded DELETE, by rounds."""
    guarded, bare = ([one for one in costs[name] if one.kind == kind] for name in (way, "none"))
    return median(ours.cpu_ms / theirs.cpu_ms for ours, theirs in zip(guarded, bare, strict=True))


def as_json(results: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    plain = {
        name: {who: [one.as_json() for one in measured] for who, measured in results[name].items()}
        for name in (
            "drain",
            "cpu",
            "lateness",
            "deadlines",
            "schedule",
            "coldstart",
            "decide",
            "plan",
            "guard",
            "trainjobs",
            "scale",
        )
        if name in results
    }
    if "timers" in results:
        plain["timers"] = results["timers"]
    return {**facts, **plain, "aims": [asdict(aim) for aim in aims(results)]}


def show(console: Console, results: Mapping[str, Any]) -> None:
    tables: dict[str, Callable[[Any], Table]] = {
        "drain": drain_table,
        "lateness": lateness_table,
        "deadlines": deadlines_table,
        "timers": timers_table,
        "schedule": schedule_table,
        "coldstart": coldstart_table,
        "decide": decide_table,
        "plan": plan_table,
        "guard": guard_table,
        "trainjobs": trainjobs_table,
        "scale": scale_table,
    }
    for name, table in tables.items():
        if name in results:
            _print(console, table(results[name]))
        if name in results and table is drain_table:
            _print(console, rounds_table(results[name]))
    if reported := aims(results):
        _print(console, aims_table(reported))


def _print(console: Console, table: Table) -> None:
    """With the title and the caption not folded to the table's width."""
    title, caption, table.title, table.caption = table.title, table.caption, None, None
    console.print(f"\n[bold]{title}[/]", table, f"[dim]{caption}[/]" if caption else "", sep="\n")


def deadlines_table(stopped: Mapping[str, Sequence[Stopped]]) -> Table:
    table = new_table(
        f"Deadlines: stop accepted - due, {STOPS_PER_SECOND} Jobs reach their deadline at each whole second",
        "",
        "Jobs",
        "earliest ms",
        "p50 ms",
        "p99 ms",
        "max ms",
        "p99 of the peer's",
        f"p99 of the limit, {STOP_LIMIT_MS // 1000} s",
        "CPU ms a stop",
        caption="From the API server's audit log, for both. The Job controller runs in both: it starts the Jobs, and "
        "fails those that are stopped. Earliest: when the first request was received.",
    )
    ratios = [ours.p99 / theirs.p99 for ours, theirs in zip(stopped["ours"], stopped["peer"], strict=True)]
    shares = {"ours": median(ratios), "peer": 1.0}
    for name, title in STOP_TITLES.items():
        rounds = stopped[name]
        earliest, most = min(one.earliest for one in rounds), max(one.most for one in rounds)
        p50, p99 = (median(getattr(one, field) for one in rounds) for field in ("p50", "p99"))
        values = (earliest, p50, p99, most)
        of_limit = f"{p99 / STOP_LIMIT_MS:.1%}"
        jobs = f"{sum(one.jobs for one in rounds):,}"
        cpu = f"{median(one.cpu_ms for one in rounds):.2f}"
        table.add_row(title, jobs, *(f"{one:.1f}" for one in values), f"x {shares[name]:.2f}", of_limit, cpu)
    return table


def timers_table(sizes: Sequence[Mapping[str, Any]]) -> Table:
    table = new_table("Timers in SQLite, synchronous=FULL", "", *(f"{size['timers']:,}" for size in sizes))
    for name, title in bench_timers.COLUMNS.items():
        if name in sizes[0]:
            table.add_row(title, *(bench_timers.cell(size[name]) for size in sizes))
    return table


def schedule_table(slices: Mapping[str, Sequence[Slice]]) -> Table:
    table = new_table(
        "`schedule` on one core: 6 KB Jobs over HTTP, 16 connections",
        "",
        "a second",
        "slices",
        "a CPU second",
        "of the bare endpoint",
        caption="Bare: Starlette under the same uvicorn, reads the body, answers 204. A CPU second is one of the "
        "server's own: what it would do in a second if no other process used its core.",
    )
    for name, title in (("schedule", "schedule, each answered by a timer.set"), ("bare", "bare endpoint")):
        rates = [one.per_second for one in slices[name]]
        of_cpu = median(one.per_cpu_second for one in slices[name])
        share = of_cpu / median(one.per_cpu_second for one in slices["bare"])
        spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
        table.add_row(title, f"{median(rates):,.0f}", spread, f"{of_cpu:,.0f}", f"{share:.0%}")
    return table


def coldstart_table(starts: Mapping[str, Sequence[ColdStart]]) -> Table:
    table = new_table(
        "Cold start: from the start of the process to the first answered event",
        "",
        "ms",
        "least",
        "CPU ms",
        "of bare",
        "of the empty function",
        caption=f"Medians of {STARTS} starts each, in turns; files in the page cache, modules compiled.",
    )
    (bare,), (empty,) = starts["bare"], starts["empty"]
    for name, (one,) in starts.items():
        ratios = (f"x {one.ms / limit.ms:.2f}" for limit in (bare, empty))
        table.add_row(LIMITS.get(name, name), *(f"{ms:.0f}" for ms in (one.ms, one.least_ms, one.cpu_ms)), *ratios)
    return table


def decide_table(measured: Mapping[str, Sequence[Decisions]]) -> Table:
    table = new_table(
        "Decisions on one core",
        "",
        "a second",
        "walks",
        caption="Under a policy of five rules. A walk looks at each value of the same object once.",
    )
    for one in measured["decide"]:
        table.add_row(one.case, f"{one.per_second:,}", f"{one.walks:.1f}")
    return table


def plan_table(timed: Mapping[str, Sequence[Timed]]) -> Table:
    table = new_table(
        "`plan --policy`: Jobs and their Pods in 40 namespaces, a dozen rules, compared with none",
        "",
        "objects",
        "seconds",
        "from - to",
        "of the limit",
        caption="The limit: a paged LIST of the same objects, one page after the other, and its JSON decoded.",
    )
    for name, title, share in (("plan", "plan", ratio(timed)), ("list", "bare LIST", 1.0)):
        seconds = [one.seconds for one in timed[name]]
        spread = f"{min(seconds):.1f} - {max(seconds):.1f}"
        table.add_row(title, f"{timed[name][0].objects:,}", f"{median(seconds):.1f}", spread, f"x {share:.2f}")
    return table


def guard_table(costs: Mapping[str, Sequence[Cost]]) -> Table:
    table = new_table(
        "The delete guard: DELETE of finished objects, 8 at a time",
        "",
        "objects",
        "API server CPU ms a DELETE",
        "of unguarded",
        "p50 ms",
        "p99 ms",
        caption="The API server evaluates the policy of the kind in each DELETE; the others are looked up only.",
    )
    for kind in FOLDERS:
        for way, title in WAYS.items():
            measured = [one for one in costs[way] if one.kind == kind]
            values = [median(getattr(one, name) for one in measured) for name in ("cpu_ms", "p50", "p99")]
            share = f"x {_times(costs, way, kind):.2f}"
            cells = (f"{sum(one.objects for one in measured):,}", f"{values[0]:.2f}", share)
            table.add_row(f"{kind}, {title}", *cells, *(f"{one:.1f}" for one in values[1:]))
    return table


def trainjobs_table(measured: Mapping[str, Sequence[Slo]]) -> Table:
    table = new_table(
        "TrainJobs: what KEP-2899 asks for, and what `run` does",
        "",
        "limit",
        "measured",
        "better",
        caption="All TrainJobs had finished and waited at once: half in one namespace by their own field, half in nine "
        "others by that of their runtimes. Lateness from the API server's audit log.",
    )
    for one in measured["slos"]:
        limit, number = (f"{_number(value)} {one.unit}".strip() for value in (one.limit, one.measured))
        table.add_row(one.name, f"{'<' if one.is_most else ''} {limit}".strip(), number, f"x {_number(one.better)}")
    return table


def scale_table(measured: Mapping[str, Sequence[Figure]]) -> Table:
    table = new_table("Finished Jobs that wait, due evenly within an hour", "", "measured")
    for one in measured["figures"]:
        table.add_row(one.name, f"{_number(one.value)} {one.unit}".strip())
    return table


def aims_table(wanted: Sequence[Aim]) -> Table:
    table = new_table("Aims", "", "aim", "measured", "")
    for one in wanted:
        table.add_row(one.name, one.aim, one.measured, "[green]met[/]" if one.met else "[red]not met[/]")
    return table
