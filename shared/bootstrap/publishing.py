"""Build the publisher that sends events to the Broker."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from shared.adapters.config.settings import Settings, SettingsError
from shared.ports import Cluster

if TYPE_CHECKING:
    from shared.adapters.events.publisher import HttpPublisher


def build_publisher(settings: Settings, connected: Callable[[], Awaitable[Cluster]], **options: Any) -> "HttpPublisher":
    """Make the publisher for the sink in the settings; the caller closes it.

    Args:
        settings: The settings, with a sink.
        connected: Returns the cluster that issues the token, if the settings name a ServiceAccount for the sink.
        options: The options of HttpPublisher.

    Raises:
        SettingsError: K_SINK is empty, or only one of TTL_SINK_ACCOUNT and TTL_SINK_AUDIENCE is set.
    """
    from shared.adapters.events.publisher import HttpPublisher  # noqa: PLC0415 - only some functions publish

    account, audience = settings.sink_account, settings.sink_audience
    if not settings.sink:
        raise SettingsError("K_SINK: expected the Broker's URL, got none")
    if bool(account) != bool(audience):
        raise SettingsError("TTL_SINK_ACCOUNT: expected it together with TTL_SINK_AUDIENCE, got only one of the two")
    if account:
        from shared.adapters.auth.identity import RenewedToken  # noqa: PLC0415 - only outside the cluster
        from shared.adapters.kubernetes.service_account_tokens import AccountTokens  # noqa: PLC0415 - as above

        options["token"] = RenewedToken(AccountTokens(connected, account, audience)).token
    return HttpPublisher(settings.sink, source="ttl-after-finished", **options)
