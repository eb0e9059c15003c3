"""For each alert, series of the functions over time: when it does not fire yet, and when it fires.

The names and labels of the series are those that real processes show: tests/fixtures/metrics. The numbers are values a
minute as `promtool test rules` reads them: `0+9x120` begins at 0 and grows by 9 a minute, 120 times; `_` is no value.
"""

from dataclasses import dataclass, field

INTERVAL = {'ttl_sweep_interval_seconds{function="sweep",pod="sweep-1"}': "600x200"}
FIRED = 'type="dev.ttlafterfinished.timer.fired"'


@dataclass(frozen=True, slots=True)
class AlertCase:
    """How an alert comes to fire.

    Attributes:
        series: Values a minute, by series.
        silent: A minute in which the alert does not fire yet.
        fires: A minute in which it fires.
        summary: What its summary says then; `{{` is not left in it.
        labels: Its labels then, beside its severity.
    """

    series: dict[str, str]
    silent: int
    fires: int
    summary: str
    labels: dict[str, str] = field(default_factory=dict)


def lateness(metric: str, function: str) -> dict[str, str]:
    """Ten a minute, of which one is 40 minutes late."""
    series = f'{metric}_bucket{{by="{function}",function="{function}",kind="Job",le="%s"}}'
    return INTERVAL | {series % "1200.0": "0+9x200", series % "3600.0": "0+10x200", series % "+Inf": "0+10x200"}


def counted(series: str) -> dict[str, str]:
    """A counter that begins in the 30th minute, as that of a new label does."""
    return {series: "_x29 1x60"}


CASES = {
    "TtlDeletionsLate": AlertCase(
        lateness("ttl_deletion_lateness_seconds", "expire"),
        silent=30,
        fires=35,
        summary="One deletion in a hundred is later than two sweep intervals (56m 0s).",
    ),
    "TtlStopsLate": AlertCase(
        lateness("ttl_stop_lateness_seconds", "enforce"),
        silent=30,
        fires=35,
        summary="One stop in a hundred is later than two sweep intervals after the deadline (56m 0s).",
    ),
    "TtlSweepMissing": AlertCase(
        INTERVAL | {'ttl_sweep_last_end_timestamp_seconds{function="sweep",kind="Job"}': "0x120"},
        silent=35,
        fires=36,
        summary="No sweep has listed all of Job for three intervals. Objects that events missed are kept.",
        labels={"kind": "Job"},
    ),
    "TtlTimersOverdue": AlertCase(
        {'ttl_timers_next_due_timestamp_seconds{function="timers"}': "0x60"},
        silent=7,
        fires=8,
        summary="A timer that was due 8m 0s ago has not been delivered.",
    ),
    "TtlTimersUnknown": AlertCase(
        {
            'ttl_sweep_interval_seconds{function="timers",pod="timers-1"}': "600x60",
            'ttl_timers_pending{function="timers",pod="timers-1"}': "3x9 _x50",
        },
        silent=23,
        fires=24,
        summary="timers-1 cannot read its timers: the timer engine, or its NATS, does not answer.",
        labels={"function": "timers", "pod": "timers-1"},
    ),
    "TtlEventsNotPublished": AlertCase(
        {
            f'ttl_published_total{{function="timers",result="failed",{FIRED}}}': "0+1x60",
            f'ttl_published_total{{function="timers",result="accepted",{FIRED}}}': "0+3x60",
        },
        silent=15,
        fires=17,
        summary="The Broker does not accept 25% of dev.ttlafterfinished.timer.fired.",
        labels={"type": "dev.ttlafterfinished.timer.fired"},
    ),
    "TtlTryLater": AlertCase(
        {
            'ttl_events_total{function="sweep",status="503"}': "0+1x60",
            'ttl_events_total{function="sweep",status="204"}': "0+1x60",
        },
        silent=15,
        fires=17,
        summary="sweep answers 503 to 50% of its events: the API server or the timer engine is busy.",
        labels={"function": "sweep"},
    ),
    "TtlDeadLetters": AlertCase(
        counted(f'ttl_dead_letters_total{{code="422",function="deadletter",{FIRED}}}'),
        silent=28,
        fires=30,
        summary="Events of type dev.ttlafterfinished.timer.fired became dead letters with HTTP status 422.",
        labels={"code": "422", "type": "dev.ttlafterfinished.timer.fired"},
    ),
    "TtlStopped": AlertCase(
        {'ttl_stopped{function="expire"}': "1x90"},
        silent=59,
        fires=60,
        summary="Deletions have been stopped for more than an hour. Nothing is deleted until a person starts them "
        "again.",
    ),
    "TtlBreakerOpen": AlertCase(
        {'ttl_breaker_open{function="expire"}': "0x9 1x9", 'ttl_breaker_open{function="sweep"}': "0x60"},
        silent=9,
        fires=10,
        summary="The breaker is open. Nothing is deleted until a person releases it.",
    ),
    "TtlRecreateLoop": AlertCase(
        counted('ttl_recreate_loops_total{function="expire",kind="Job"}'),
        silent=28,
        fires=30,
        summary="A controller recreates Job objects after each deletion. Their names are kept for a while.",
        labels={"kind": "Job"},
    ),
    "TtlStopsRefused": AlertCase(
        counted(
            'ttl_objects_total{by="enforce",function="enforce",kind="Job",reason="ForbiddenError",verdict="failed"}'
        ),
        silent=28,
        fires=30,
        summary="The API server refuses to stop Job objects at their deadline (ForbiddenError). They run on.",
        labels={"kind": "Job", "reason": "ForbiddenError"},
    ),
    "TtlStopsUndone": AlertCase(
        counted('ttl_objects_total{by="enforce",function="enforce",kind="Job",reason="stop-undone",verdict="kept"}'),
        silent=28,
        fires=30,
        summary="Job objects were stopped at their deadline and run again. They are not stopped again.",
        labels={"kind": "Job"},
    ),
    "TtlNotArchived": AlertCase(
        {'ttl_archive_oldest_unacknowledged_seconds{function="archive"}': "0+60x120"},
        silent=70,
        fires=71,
        summary="An object that finished more than an hour ago is not archived. It is kept, however late it is due.",
    ),
    "TtlPolicyBad": AlertCase(
        {'ttl_policy_good{function="expire"}': "1x9 0x60", 'ttl_policy_good{function="usage"}': "1x60"},
        silent=14,
        fires=15,
        summary="The policy file is not valid. The last valid policy stays in force, and a process that restarts does "
        "not start.",
    ),
    "TtlUsagePassIncomplete": AlertCase(
        {'ttl_usage_pass_complete{function="usage"}': "0x200", 'ttl_usage_pass_complete{function="expire"}': "1x200"},
        silent=179,
        fires=180,
        summary="It is unknown which Secrets and ConfigMaps are unused, so none is marked or deleted. A kind cannot be "
        "listed, or an object may refer to all of them.",
    ),
}
"""By the name of the alert."""
