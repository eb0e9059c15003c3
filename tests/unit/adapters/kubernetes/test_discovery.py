"""Discovery: which paths are read, how long an answer is cached, and what a failure affects."""

import asyncio

import pytest

from shared.adapters.kubernetes import api_groups, discovery
from shared.adapters.kubernetes.discovery import ABSENT_KIND_SECONDS, SERVED_SECONDS, Discovery, resource_path
from shared.errors import AbsentKindError, ForbiddenError, PermanentError, TryLaterError
from tests.builders import JOB, POD, TRAINJOB

pytestmark = pytest.mark.anyio

TRAINER = "trainer.kubeflow.org"
RUN = JOB.model_copy(update={"api_versions": ("tekton.dev/v1", "tekton.dev/v1beta1"), "kind": "Run", "plural": "runs"})


class Server:
    """Discovery documents by group: `{"tekton.dev": {"v1": {"Run": "runs"}}}`, the preferred version first."""

    def __init__(self):
        self.groups = {"": {"v1": {"Pod": "pods"}}, "batch": {"v1": {"Job": "jobs"}}}
        self.errors = {}
        self.asked = []
        self.seconds = 1_000.0

    async def ask(self, path):
        self.asked.append(path)
        await asyncio.sleep(0)
        if error := self.errors.get(path):
            raise error
        match path.removeprefix("/").split("/"):
            case ["api", "v1"]:
                return resources(self.groups[""]["v1"])
            case ["apis"]:
                return {"groups": [about(group, versions) for group, versions in self.groups.items() if group]}
            case ["apis", group] if group in self.groups:
                return about(group, self.groups[group])
            case ["apis", group, version] if version in self.groups.get(group, {}):
                return resources(self.groups[group][version])
        raise AbsentKindError(path)

    def since(self):
        """The requests since the last call."""
        asked, self.asked = self.asked, []
        return asked


def about(group, versions):
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in sorted(versions)]
    preferred = next(iter(versions))
    return {"name": group, "versions": listed, "preferredVersion": {"groupVersion": f"{group}/{preferred}"}}


def resources(kinds):
    listed = [{"name": plural, "kind": kind, "namespaced": True} for kind, plural in kinds.items()]
    return {"resources": [{"name": f"{one['name']}/status", "kind": one["kind"]} for one in listed] + listed}


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def found(server):
    return Discovery(server.ask, lambda: server.seconds)


def only_in(api_version):
    """A call that has an answer in one version only."""

    async def call(rule):
        if rule.api_version != api_version:
            raise AbsentKindError(rule.api_version)
        return "found"

    return call


# Requests


async def test_built_in_kind_needs_no_read_of_other_groups(server, found):
    assert await found.served((POD,)) == (POD,)
    assert server.since() == ["/api/v1"]
    assert await found.served((JOB,)) == (JOB,)
    assert server.since() == ["/apis/batch", "/apis/batch/v1"]


async def test_many_kinds_need_one_read_of_all_groups_and_one_per_served_version(server, found):
    server.groups["tekton.dev"] = {"v1": {"Run": "runs"}, "v1beta1": {"Run": "runs"}}
    server.groups["apps"] = {"v1": {"Deployment": "deployments"}}

    assert await found.served((JOB, POD, TRAINJOB, RUN)) == (JOB, POD, RUN)
    assert sorted(server.since()) == [
        "/api/v1",
        "/apis",
        "/apis/batch/v1",
        "/apis/tekton.dev/v1",
        "/apis/tekton.dev/v1beta1",
    ]


async def test_served_kind_is_cached_longer_than_an_absent_one(server, found):
    await found.served((JOB, POD, TRAINJOB))
    server.since()
    server.seconds += ABSENT_KIND_SECONDS - 1
    await found.served((JOB, POD, TRAINJOB))
    assert server.since() == []

    server.groups[TRAINER] = {"v1alpha1": {"TrainJob": "trainjobs"}}
    server.seconds += 1
    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD, TRAINJOB)
    assert server.since() == [f"/apis/{TRAINER}", f"/apis/{TRAINER}/v1alpha1"]

    del server.groups[TRAINER]
    server.seconds += SERVED_SECONDS
    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD)


async def test_concurrent_requests_share_one_read(server, found):
    answers = await asyncio.gather(*(found.served((JOB,)) for _ in range(50)))

    assert answers == [(JOB,)] * 50
    assert server.since() == ["/apis/batch", "/apis/batch/v1"]


async def test_concurrent_requests_share_one_failure(server, found):
    """If the API server does not answer, the callers must not wait one after the other."""
    server.errors["/apis/batch"] = TryLaterError("away")
    answers = await asyncio.gather(*(found.served((JOB,)) for _ in range(50)), return_exceptions=True)

    assert {str(error) for error in answers} == {"away"}
    assert server.since() == ["/apis/batch"]


# After a 404


async def test_404_rereads_the_group(server, found):
    server.groups["tekton.dev"] = {"v1beta1": {"Run": "runs"}}
    (before,) = await found.served((RUN,))
    server.groups["tekton.dev"] = {"v1": {"Run": "runs"}}
    server.seconds += discovery.REREAD_SECONDS

    answer, after = await found.call_as_served(before, only_in("tekton.dev/v1"))

    assert before.api_version == "tekton.dev/v1beta1"
    assert (answer, after.api_version) == ("found", "tekton.dev/v1")
    assert found.known(before).api_version == "tekton.dev/v1"


async def test_repeated_404s_do_not_reread_the_group_each_time(server, found):
    await found.served((JOB,))
    server.since()
    for _ in range(100):
        with pytest.raises(AbsentKindError):
            await found.call_as_served(JOB, only_in("batch/v2"))

    assert server.since() == []


async def test_failed_discovery_after_a_404_raises_try_later(server, found):
    await found.served((JOB,))
    server.seconds += 60
    server.errors["/apis/batch"] = TryLaterError("503")

    with pytest.raises(TryLaterError):
        await found.call_as_served(JOB, only_in("batch/v2"))


def test_unread_group_leaves_the_rule_unchanged(found):
    assert found.known(JOB) is JOB


# Failures


async def test_broken_group_hides_no_other(server, found):
    server.groups |= {TRAINER: {"v1alpha1": {}}, "tekton.dev": {"v1": {"Run": "runs"}}}
    server.errors[f"/apis/{TRAINER}/v1alpha1"] = TryLaterError("503")

    assert await found.served((JOB, TRAINJOB, RUN)) == (JOB, TRAINJOB, RUN), "what is not known may be served"
    with pytest.raises(TryLaterError):
        await found.served((TRAINJOB,))


async def test_broken_version_that_no_rule_knows_is_ignored(server, found):
    server.groups["batch"] = {"v1": {"Job": "jobs"}, "v9": {}}
    server.errors["/apis/batch/v9"] = TryLaterError("503")

    assert await found.served((JOB,)) == (JOB,)


async def test_group_that_does_not_answer_times_out(server, found, monkeypatch):
    monkeypatch.setattr(api_groups, "DISCOVERY_SECONDS_MAX", 0.01)

    async def ask(path):
        if path.startswith(f"/apis/{TRAINER}"):
            await asyncio.Event().wait()
        return await server.ask(path)

    found = Discovery(ask, lambda: server.seconds)
    server.groups[TRAINER] = {"v1alpha1": {"TrainJob": "trainjobs"}}

    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD, TRAINJOB)


async def test_unreachable_api_server_raises_try_later(server, found):
    server.errors = dict.fromkeys(("/api/v1", "/apis"), TryLaterError("away"))

    with pytest.raises(TryLaterError, match="away"):
        await found.served((JOB, POD, TRAINJOB))


async def test_cached_answer_is_used_while_the_api_server_is_unreachable(server, found):
    await found.served((JOB, POD, TRAINJOB))
    server.errors = dict.fromkeys(("/api/v1", "/apis", f"/apis/{TRAINER}"), TryLaterError("away"))
    server.seconds += SERVED_SECONDS

    assert await found.served((JOB, POD, TRAINJOB)) == (JOB, POD)


@pytest.mark.parametrize("path", ["/apis", "/apis/batch/v1"])
async def test_forbidden_discovery_leaves_the_rules_unchanged(server, found, path):
    server.errors[path] = ForbiddenError("may not")

    assert JOB in await found.served((JOB, TRAINJOB, POD))


async def test_forbidden_discovery_does_not_choose_between_two_rules(server, found):
    other = RUN.model_copy(update={"api_versions": ("tekton.dev/v2",)})
    server.errors["/apis/tekton.dev"] = ForbiddenError("may not")

    assert await found.served((RUN, other)) == ()


NEVER = RUN.model_copy(update={"finished": None, "finished_at": (), "ttl": None, "never_finishes": "it is a child"})


async def test_rule_that_reads_nothing_fits_an_unknown_version(server, found):
    server.groups["tekton.dev"] = {"v3": {"Other": "others"}, "v2": {"Run": "runnings"}}

    (served,) = await found.served((NEVER,))

    assert (served.api_version, served.plural) == ("tekton.dev/v2", "runnings")
    assert await found.served((RUN,)) == await found.served((RUN, NEVER)) == ()


async def test_rule_that_reads_nothing_prefers_a_known_version(server, found):
    server.groups["tekton.dev"] = {"v2": {"Run": "runs"}, "v1": {"Run": "runs"}}

    assert await found.served((NEVER,)) == (NEVER,)


async def test_kind_is_not_absent_while_a_version_cannot_be_read(server, found):
    server.groups["tekton.dev"] = {"v3": {"Other": "others"}, "v2": {"Run": "runs"}}
    server.errors["/apis/tekton.dev/v2"] = TryLaterError("away")

    with pytest.raises(TryLaterError, match="away"):
        await found.served((NEVER,))


async def test_version_that_no_rule_knows_is_logged(server, found):
    server.errors["/apis/batch"] = PermanentError("401")

    with pytest.raises(PermanentError, match="401"):
        await found.served((JOB,))


@pytest.mark.parametrize("answer", [{}, {"groups": None}, {"groups": ["batch", {"name": 5}, {"name": "batch"}]}])
async def test_answer_of_another_shape_has_no_kinds(server, found, answer):
    async def ask(_path):
        return answer

    assert await Discovery(ask, lambda: 0.0).served((JOB, TRAINJOB)) == ()


@pytest.mark.parametrize(
    ("rule", "everywhere", "in_one_namespace"),
    [
        (JOB, "/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/ci/jobs"),
        (POD, "/api/v1/pods", "/api/v1/namespaces/ci/pods"),
        (
            TRAINJOB,
            "/apis/trainer.kubeflow.org/v1alpha1/trainjobs",
            "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ci/trainjobs",
        ),
    ],
    ids=["a named group", "the core group", "a custom resource"],
)
async def test_paths_are_those_of_the_api_server(rule, everywhere, in_one_namespace):
    assert resource_path(rule) == everywhere
    assert resource_path(rule, "ci") == in_one_namespace
