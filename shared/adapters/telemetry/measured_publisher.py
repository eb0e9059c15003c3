"""A publisher that counts each event by its type, and by whether the Broker accepted it."""

from prometheus_client import Counter

from shared.messages import Message
from shared.ports import Publisher


class MeasuredPublisher:
    """Counts each event and passes it on.

    Args:
        publisher: The publisher that receives each event.
        published: The counter, with the labels `type` and `result`.
    """

    def __init__(self, publisher: Publisher, published: Counter) -> None:
        self._publisher = publisher
        self._published = published

    async def publish(self, message: Message) -> None:
        """See `shared.ports.Publisher`."""
        result = "failed"  # also if the caller was cancelled
        try:
            await self._publisher.publish(message)
            result = "accepted"
        finally:
            self._published.labels(message.type, result).inc()
