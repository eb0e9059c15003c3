"""The check of a running process that the delete guard is in force for its own account."""

import asyncio

import pytest

from shared.core.kinds.rule import Catalogue
from shared.errors import ForbiddenError, TryLaterError
from shared.installation.guard_status import CHECKED_SECONDS, UNREAD_SECONDS, GuardCheck
from shared.installation.guards import guard
from tests.builders import JOB, POD, having

pytestmark = pytest.mark.anyio

NAMESPACE = "ttl-after-finished"
POLICY, BINDING = guard([JOB], NAMESPACE)


class Answer:
    def __init__(self, body):
        self.body = body


class Server:
    def __init__(self, policy=POLICY, binding=BINDING, user=f"system:serviceaccount:{NAMESPACE}:expire", error=None):
        self.policy, self.binding, self.user, self.error = policy, binding, user, error
        self.requests = 0

    async def request(self, method, path, **_options):
        self.requests += 1
        if self.error:
            raise self.error
        if method == "POST":
            return Answer({"status": {"userInfo": {"username": self.user}}})
        body = self.policy if "policies/" in path else self.binding
        return Answer(body) if body else None


class Clock:
    def __init__(self):
        self.at = 0.0

    def __call__(self):
        return self.at


def checking(server, clock=None):
    return GuardCheck(server, Catalogue((JOB,)), NAMESPACE, clock or Clock())


async def test_current_guard_that_binds_this_account_is_in_force():
    assert await checking(Server()).is_in_force(JOB)


@pytest.mark.parametrize(
    "server",
    [
        Server(policy=None),
        Server(binding=None),
        Server(policy=having(POLICY, "spec.failurePolicy", "Ignore")),
        Server(policy=guard([JOB], "elsewhere")[0]),
        Server(user="system:serviceaccount:elsewhere:expire"),
        Server(user="admin"),
        Server(user=""),
        Server(error=ForbiddenError("no")),
    ],
    ids=["no policy", "no binding", "altered", "of others", "other namespace", "a person", "no name", "forbidden"],
)
async def test_any_other_state_is_not_in_force(server):
    assert not await checking(server).is_in_force(JOB)


async def test_kind_without_a_rule_is_not_in_force():
    assert not await checking(Server()).is_in_force(POD)


async def test_result_counts_for_a_while_and_is_then_read_again():
    server, clock = Server(), Clock()
    guards = checking(server, clock)
    assert await guards.is_in_force(JOB)
    server.binding, read = None, server.requests

    clock.at += CHECKED_SECONDS - 1
    assert await guards.is_in_force(JOB)
    assert server.requests == read

    clock.at += 1
    assert not await guards.is_in_force(JOB)


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_error_counts_for_a_shorter_while(verb):
    class Failing(Server):
        async def request(self, method, path, **options):
            if method == verb and self.error:
                self.requests += 1
                raise self.error
            return await Server(self.policy, self.binding, self.user).request(method, path, **options)

    server, clock = Failing(error=TryLaterError("503")), Clock()
    guards = checking(server, clock)
    assert not await guards.is_in_force(JOB)
    failed = server.requests

    clock.at += UNREAD_SECONDS - 1
    server.error = None
    assert not await guards.is_in_force(JOB)
    assert server.requests == failed

    clock.at += 1
    assert await guards.is_in_force(JOB)


async def test_result_counts_from_the_start_of_its_read():
    clock = Clock()

    class Slow(Server):
        async def request(self, method, path, **options):
            answer = await super().request(method, path, **options)
            clock.at += 15.0
            return answer

    server = Slow()
    guards = checking(server, clock)
    assert await guards.is_in_force(JOB)
    server.binding = None

    clock.at = CHECKED_SECONDS
    assert not await guards.is_in_force(JOB)


async def test_those_that_wait_for_a_slow_error_share_it():
    clock = Clock()

    class Slow(Server):
        async def request(self, method, path, **options):
            clock.at += 15.0
            return await super().request(method, path, **options)

    server = Slow(error=TryLaterError("no answer within 30 s"))
    guards = checking(server, clock)
    assert await asyncio.gather(*(guards.is_in_force(JOB) for _ in range(4))) == [False] * 4
    assert server.requests == 2  # the policy and the binding, once
