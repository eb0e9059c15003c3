"""Build the check of the callers of a function."""

from collections.abc import Awaitable, Callable

from shared.adapters.config.settings import Settings, SettingsError
from shared.adapters.config.timers_address import CloudTasksAddress


def build_admission(settings: Settings) -> Callable[[str], Awaitable[None]] | None:
    """Make the check of a request's Authorization header; None if every caller is admitted.

    Raises:
        SettingsError: The settings of the callers are incomplete.
    """
    if not settings.callers and (settings.callers_audience or settings.callers_issuer):
        raise SettingsError("TTL_CALLERS: expected the subjects that may call, got none")
    if not settings.callers:
        return None
    if not settings.callers_audience:
        raise SettingsError("TTL_CALLERS_AUDIENCE: expected the audience of the callers' tokens, got none")
    from shared.adapters.auth import callers  # noqa: PLC0415 - loads cryptography, which only this check needs

    issuer = callers.Issuer(settings.callers_issuer) if settings.callers_issuer else callers.ApiServerIssuer()
    audience = settings.callers_audience
    admitted = callers.Callers(settings.callers, audience=audience, keys=callers.Keys(issuer))
    if not isinstance(settings.timers, CloudTasksAddress):
        return admitted.admit
    from shared.adapters.auth.callers import GOOGLE_ISSUER, TaskCallers  # noqa: PLC0415 - only with Cloud Tasks

    google = callers.Keys(callers.Issuer(GOOGLE_ISSUER))
    tasks = callers.Callers((settings.tasks_account,), audience=audience, keys=google, claim="email")
    return TaskCallers(admitted, tasks).admit
