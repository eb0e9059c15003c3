"""The example examples/warn-chat: a warning becomes one message in a chat."""

import importlib.util
import json
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer
from starlette.requests import Request

from shared.adapters.config.policy_file import parse_policy
from shared.adapters.events.cloudevents import event_of, to_http
from shared.core.kinds.rule import Outcome
from shared.core.values.objects import ObjectRef
from shared.messages import ObjectWarned
from shared.standalone.triggers import Trigger
from tests.builders import NOW, ROOT, later, not_none, read_yaml, shipped_kinds
from tests.kubectl import kustomize

pytestmark = pytest.mark.anyio

FOLDER = ROOT / "examples" / "warn-chat"
WARNED = ObjectWarned(
    ref=ObjectRef("batch/v1", "Job", "ci", "build-42", "u-1"),
    outcome=Outcome.SUCCEEDED,
    finished_at=NOW,
    ttl_from="policy rule ci-jobs",
    due_at=later(3600),
)


@pytest.fixture
def chat() -> Any:
    """The function, as the functions framework loads it: by its file."""
    spec = not_none(importlib.util.spec_from_file_location("chat", FOLDER / "chat.py"))
    module = importlib.util.module_from_spec(spec)
    not_none(spec.loader).exec_module(module)
    return module.chat


def request_of(message: ObjectWarned) -> Request:
    headers, body = to_http(event_of(message, source="ttl-after-finished/expire"))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": pairs}, receive)


class Chat:
    """A webhook of a chat that stores the messages."""

    def __init__(self) -> None:
        self.status, self.texts = 200, list[str]()

    async def post(self, request: web.Request) -> web.Response:
        if self.status < 300:
            self.texts.append((await request.json())["text"])
        return web.Response(status=self.status)


@pytest.fixture
async def webhook(monkeypatch):
    webhook, app = Chat(), web.Application()
    app.router.add_post("/hooks/key", webhook.post)
    async with TestServer(app) as server:
        monkeypatch.setenv("CHAT_WEBHOOK", str(server.make_url("/hooks/key")))
        yield webhook


async def test_warning_is_one_message_with_the_command_that_keeps_the_object(chat, webhook):
    assert (await chat(request_of(WARNED))).status_code == 204
    assert (await chat(request_of(WARNED))).status_code == 204
    (text,) = webhook.texts
    assert text.startswith("Job ci/build-42 is due at 2026-")
    assert text.endswith("To keep it: `kubectl ttl hold job/build-42 -n ci --reason WHY`")


async def test_chat_that_does_not_accept_the_message_is_retried(chat, webhook):
    webhook.status = 500
    assert (await chat(request_of(WARNED))).status_code == 503
    webhook.status = 200
    assert (await chat(request_of(WARNED))).status_code == 204
    assert len(webhook.texts) == 1


def test_trigger_delivers_only_warnings_to_the_function():
    service, manifest = read_yaml(FOLDER / "chat.yaml")
    trigger = Trigger.model_validate(manifest)
    assert trigger.matches({"type": ObjectWarned.type})
    assert not trigger.matches({"type": "dev.ttlafterfinished.object.deleted"})
    assert trigger.subscriber == service["metadata"]["name"]


def test_policy_of_the_example_is_valid():
    policy = parse_policy((FOLDER / "policy.yaml").read_text(), shipped_kinds(), name="policy.yaml")
    assert policy.rules[0].warn is not None


def test_kustomization_mounts_the_function():
    objects = {one["kind"]: one for one in yaml.safe_load_all(kustomize(FOLDER))}
    config_map, pod = objects["ConfigMap"], objects["Service"]["spec"]["template"]["spec"]
    assert config_map["data"] == {"chat.py": (FOLDER / "chat.py").read_text()}
    assert pod["volumes"][0]["configMap"]["name"] == config_map["metadata"]["name"]
    assert json.dumps(pod["containers"][0]["image"]).count(":") == 1  # the released version
