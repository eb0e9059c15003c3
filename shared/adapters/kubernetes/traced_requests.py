"""The spans of requests to the API server, by the semantic conventions for HTTP clients of OpenTelemetry.

Source: https://opentelemetry.io/docs/specs/semconv/http/http-spans/#http-client-span.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientResponse

from shared.adapters.tracing.attributes import NAMESPACE, get_name_attribute, note_status
from shared.adapters.tracing.current import Kind, current_traceparent, get_tracer, within_span
from shared.core.values.traceparent import TRACEPARENT

Request = Callable[..., Awaitable[ClientResponse]]
"""`ClientSession.request`."""


_PLACE = re.compile("(?P<prefix>/(?:.+?/)??(?:api|apis/(?P<group>[^/]+))/v[0-9][^/]*)/(?P<rest>.+)")
"""The path of a collection or an object; an API server behind a proxy has a path of its own before it."""


def is_traced() -> bool:
    """Return whether this process sends traces, and the running task works in one."""
    return get_tracer() is not None and current_traceparent() != ""


def traced(request: Request) -> Request:
    """Return a request function that sends each request in a span, whose identity the API server gets too."""

    async def send(method: str, url: str, *, headers: Mapping[str, str], **options: Any) -> ClientResponse:
        tracer = get_tracer()
        if tracer is None:
            return await request(method, url, headers=headers, **options)
        about = describe(method, url)
        name = f"{method} {about['url.template']}"
        span = tracer.start(name, Kind.CLIENT, about, parent=current_traceparent(), is_linked=False)
        with within_span(span):
            response = await request(method, url, headers={**headers, TRACEPARENT: span.traceparent}, **options)
            note_status(span, response.status)
            return response

    return send


def describe(method: str, url: str) -> dict[str, str | int]:
    """Return the attributes of a request; those of the object that its path names, but no query and no password."""
    parts = urlsplit(url)
    template, named = _template_of(parts.path)
    about: dict[str, str | int] = {
        "http.request.method": method,
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
        "url.full": f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}",  # no password in a trace
        "url.template": template,
    }
    return about | named


def _template_of(path: str) -> tuple[str, dict[str, str]]:
    """Return a path with placeholders, and the attributes of what it names."""
    if (found := _PLACE.fullmatch(path)) is None:
        return path, {}
    prefix, group, rest, named = [found["prefix"]], found["group"] or "", found["rest"].split("/"), {}
    if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004 - more than the namespace itself
        named[NAMESPACE], prefix, rest = rest[1], [*prefix, "namespaces", "{namespace}"], rest[2:]
    plural, *names = rest
    if names and (attribute := get_name_attribute(group, plural)):
        named[attribute] = names[0]
    return "/".join([*prefix, plural, *(["{name}", *names[1:]] if names else [])]), named
