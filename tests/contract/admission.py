"""A validating admission webhook of a test, asked at each DELETE of one resource in the test's namespace."""

import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from shared.devserver.real_servers import RealServer
from tests.contract.conftest import Api
from tests.loopback import answering_with

Review = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Takes the request of an AdmissionReview; returns fields of the response, such as `status`, beside `allowed`."""

_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def validating_deletes(
    real: RealServer, api: Api, resource: str, review: Review, *, group: str = ""
) -> AsyncIterator[None]:
    """Have a webhook asked at each DELETE until the block ends.

    Args:
        real: The API server, whose certificate the webhook uses too.
        api: The client, with the namespace.
        resource: The plural of the kind.
        review: The webhook.
        group: The API group of the kind.
    """

    async def answer_review(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        response = {"uid": asked["uid"], "allowed": True, **await review(asked)}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(real.ca, real.ca.with_suffix(".key"))
    hook = {
        "name": "deletes.example.com",
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["DELETE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    async with answering_with(answer_review, tls=context, shutdown_timeout=0.1) as url:
        client = {"url": f"{url}/", "caBundle": base64.b64encode(real.ca.read_bytes()).decode()}
        webhooks = [{**hook, "clientConfig": client}]
        answer = await api.post(_PATH, {"metadata": {"name": api.namespace}, "webhooks": webhooks})
        assert answer.status == 201, answer
        try:
            yield
        finally:
            await api.delete(f"{_PATH}/{api.namespace}")
