"""What an archive has of the logs of an object, and what is missing of them."""

from collections.abc import Iterator

from shared.cli.output.plural import plural
from shared.core.archive.document import Record

_IN_PART = ("cut:", "broken-off:", "kept:")
"""The problems with which a part of a log is stored."""


def describe_log_problems(record: Record) -> Iterator[str]:
    """Say for each container what is missing of its log: `no log of ok-jf9xx/main: refused: …`."""
    for container, problem in record.log_problems.items():
        what = "the log of {} is not complete" if problem.startswith(_IN_PART) else "no log of {}"
        yield f"{what.format(container)}: {problem}"


def explain_no_logs(record: Record) -> str:
    """Say why an object has no stored logs."""
    if record.log_problems:
        return f"no log was stored: {plural(len(record.log_problems), 'log')} missing"
    if record.with_logs:
        return "no logs were archived with the object: neither it nor its children had a container with a log"
    return "no logs were archived with the object: nothing has set `logs: true` for it when it was archived"


def count_logs(record: Record) -> str:
    """`3 logs, 1 log missing`."""
    stored, missing = len(record.logs), sum(not one.startswith(_IN_PART) for one in record.log_problems.values())
    return ", ".join([plural(stored, "log"), *([f"{plural(missing, 'log')} missing"] if missing else [])])
