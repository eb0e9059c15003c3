"""The log lines about unused Secrets and ConfigMaps."""

import logging
from collections.abc import Mapping

_NAMESPACES_LOGGED_MAX = 20

_log = logging.getLogger("ttl")


class UsageLogs:
    """The part of the log about `usage`. A problem that lasts is logged once."""

    def __init__(self) -> None:
        self._pass_problem = ""
        self._unknown: dict[str, str] = {}

    def usage_pass(self, problem: str, unknown: Mapping[str, str] | None = None) -> None:
        """See `shared.ports.Telemetry`."""
        if problem and problem != self._pass_problem:
            message = "pass not complete: Secrets or ConfigMaps are neither marked nor deleted"
            _log.warning(message, extra={"fields": {"error": problem}})
        elif self._pass_problem and not problem:
            _log.info("pass complete again", extra={"fields": {}})
        self._pass_problem = problem
        if unknown is not None:
            self._log_unknown(dict(sorted(unknown.items())[:_NAMESPACES_LOGGED_MAX]))

    def _log_unknown(self, unknown: dict[str, str]) -> None:
        for namespace, cause in unknown.items():
            if self._unknown.get(namespace) != cause:
                message = "an object cannot be read: it is unknown what is used in a namespace, and nothing is deleted"
                _log.warning(message, extra={"fields": {"namespace": namespace, "error": cause}})
        self._unknown = unknown

    def usage_ended(self, counts: Mapping[str, int], *, window_seconds: float) -> None:
        """See `shared.ports.Telemetry`."""
        window = {"window_seconds": round(window_seconds, 3)} if window_seconds else {}
        _log.info("usage ended", extra={"fields": {**counts, **window}})
