"""A function that does nothing: what functions-framework alone takes to start."""

import functions_framework.aio
from starlette.requests import Request
from starlette.responses import Response


@functions_framework.aio.http
async def empty(_: Request) -> Response:
    """Anything in, an empty 204 out."""
    return Response(status_code=204)
