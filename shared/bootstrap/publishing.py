"""Build the publisher that sends events to the Broker."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shared.adapters.config.settings import Settings, SettingsError
from shared.ports import Cluster

if TYPE_CHECKING:
    from shared.adapters.events.publisher import HttpPublisher


def http_publisher(settings: Settings, **options: Any) -> "HttpPublisher":
    """Make the publisher for the sink in the settings; the caller closes it.

    Args:
        settings: The settings, with a sink.
        options: The options of HttpPublisher.

    Raises:
        SettingsError: K_SINK is empty.
    """
    from shared.adapters.events.publisher import HttpPublisher  # noqa: PLC0415 - only some functions publish

    if not settings.sink:
        raise SettingsError("K_SINK: expected the Broker's URL, got none")
    return HttpPublisher(settings.sink, source="ttl-after-finished", **options)


def sink_token(settings: Settings, connected: Callable[[], Awaitable[Cluster]]) -> dict[str, Any]:
    """Return the option `token` of `http_publisher`; empty if the settings name no ServiceAccount for the sink.

    Args:
        settings: The settings.
        connected: Returns the cluster that issues the token.

    Raises:
        SettingsError: Only one of TTL_SINK_ACCOUNT and TTL_SINK_AUDIENCE is set.
    """
    account, audience = settings.sink_account, settings.sink_audience
    if bool(account) != bool(audience):
        raise SettingsError("TTL_SINK_ACCOUNT: expected it together with TTL_SINK_AUDIENCE, got only one of the two")
    if not account:
        return {}
    from shared.adapters.auth.identity import RenewedToken  # noqa: PLC0415 - only outside the cluster
    from shared.adapters.kubernetes.service_account_tokens import AccountTokens  # noqa: PLC0415 - only outside the cluster

    return {"token": RenewedToken(AccountTokens(connected, account, audience)).token}
