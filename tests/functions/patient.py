"""The HTTP limits of the functions, but an hour for each request: on a slow machine, no request is too slow."""

from shared.adapters.events import http_limits
from shared.adapters.events.http_limits import LimitedHttp

__all__ = ["LimitedHttp"]

http_limits.REQUEST_READ_SECONDS_MAX = 3_600.0
