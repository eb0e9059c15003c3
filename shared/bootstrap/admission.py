"""Build the check of the callers of a function."""

from collections.abc import Awaitable, Callable

from shared.adapters.config.settings import Settings, SettingsError


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
    keys = callers.Keys(issuer)
    return callers.Callers(settings.callers, audience=settings.callers_audience, keys=keys).admit
