"""Every Prometheus metric, and every alert."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import yaml
from prometheus_client import CollectorRegistry

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.telemetry.logs import LogTelemetry
from shared.adapters.telemetry.metric_parts import PendingTimersCollector
from shared.adapters.telemetry.metrics import Metrics
from tests.reference.texts import code, fill, joined, table

LABELS = {
    "archive": "The name of an archive of the policy.",
    "by": "The function that acted: `schedule`, `expire`, `enforce`, `archive`, `sweep` or `timers`.",
    "code": "The HTTP status of the last answer to the event.",
    "engine": "The timer engine: `sqlite`, `nats` or `cloudtasks`.",
    "function": "The function that answered.",
    "hour": "`01` to `24`: due in that hour after the sweep; `later`: after them; `00`: already due, so usually 0.",
    "kind": "A known kind. If several groups have a kind of this name, with the group: `Backup.velero.io`.",
    "problem": "The message of the log line.",
    "reason": "Why: see reasons.md. For the verdict `failed` it is the name of the error class.",
    "result": "`accepted` or `failed`; of the journal `recorded`, `counted` or `dropped`; of `usage` what a tick did.",
    "status": "The HTTP status of the answer. After a 503 the Broker tries again later.",
    "type": "The type of the CloudEvent: see events.md.",
    "verdict": "What was done about the object.",
    "version": "The version of ttl-after-finished.",
}
"""What each label of a metric means."""

RULES = Path(__file__).parents[2] / "knative" / "components" / "prometheus" / "rules.yaml"


class _Timers:
    """An engine with one timer, so that there is a next one."""

    async def pending(self):
        return 1

    async def next_due(self):
        return datetime(2026, 1, 1, tzinfo=UTC)


def render():
    """The page."""
    metrics = sorted(asyncio.run(collect()), key=lambda one: one[0])
    labels = sorted({label for one in metrics for label in one[2]})
    alerts = read_alerts()
    meanings = [(code(label), re.sub(r"\w+[.]md", r"[\g<0>](\g<0>)", LABELS[label])) for label in labels]
    rows = [(code(name), kind, ", ".join(map(code, names)), text) for name, kind, names, text in metrics]
    return fill(
        "metrics",
        metrics=table(("Metric", "Type", "Labels", "Meaning"), rows),
        labels=table(("Label", "Meaning"), meanings),
        alerts=table(("Alert", "Severity", "After", "Summary", "What to do"), [_alert(one) for one in alerts]),
        expressions=joined(f"### {one['alert']}\n\n```promql\n{one['expr'].strip()}\n```" for one in alerts),
    )


def read_alerts():
    """The alerts of the component."""
    document = yaml.safe_load(RULES.read_text())
    return [one for group in document["spec"]["groups"] for one in group["rules"]]


async def collect():
    """Name, type, labels and help of each metric."""
    metrics = Metrics(LogTelemetry(), kinds=read_catalogue(), sweep_interval=timedelta(minutes=10))
    metrics.watch_policy(lambda: True)
    found = [
        (_name(one), one._type, tuple(one._value) if one._type == "info" else one._labelnames, one._documentation)
        for one in cast("dict[Any, list[str]]", metrics.registry._collector_to_names)
        if hasattr(one, "_type")
    ]
    registry = CollectorRegistry()
    registry.register(PendingTimersCollector(_Timers, asyncio.get_running_loop(), "sqlite"))
    families = await asyncio.to_thread(lambda: list(registry.collect()))
    return found + [(one.name, one.type, tuple(one.samples[0].labels), one.documentation) for one in families]


def _name(one):
    return one._name + {"counter": "_total", "info": "_info"}.get(one._type, "")


def _alert(one):
    texts = one["annotations"]
    return (
        code(one["alert"]),
        one["labels"]["severity"],
        one.get("for", "at once"),
        re.sub(r"{{.*?}}", r"`\g<0>`", texts["summary"]),
        " then ".join(code(part) for part in texts["runbook"].split("; then ")),
    )
