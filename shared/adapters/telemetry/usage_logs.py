"""The log lines about unused Secrets and ConfigMaps."""

import logging
from collections.abc import Mapping

_log = logging.getLogger("ttl")


class UsageLogs:
    """The part of the log about `usage`. A problem that lasts is logged once."""

    def __init__(self) -> None:
        self._pass_problem = ""

    def usage_pass(self, problem: str) -> None:
        """See `shared.ports.Telemetry`."""
        if problem and problem != self._pass_problem:
            message = "pass not complete: no Secret or ConfigMap is marked or deleted"
            _log.warning(message, extra={"fields": {"error": problem}})
        elif self._pass_problem and not problem:
            _log.info("pass complete again", extra={"fields": {}})
        self._pass_problem = problem

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        window = {"window_seconds": round(window_seconds, 3)} if window_seconds else {}
        _log.info("usage ended", extra={"fields": {**counts, **window}})
