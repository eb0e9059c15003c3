"""What `metadata.managedFields` of a real API server attests about marks, and that nothing else is believed."""

import subprocess
import time
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from shared.core.usage.decide_unused import DeleteUnused, SetMark, decide_unused
from shared.core.usage.mark import (
    ANNOUNCEMENT_MANAGER,
    MARK_MANAGER,
    USE_MANAGER,
    announcement_patch,
    hash_foreign_writes,
    is_changed_since_mark,
    is_marked,
    mark_patch,
    read_announcement,
    read_unused_mark,
    read_used_at,
    unmark_patch,
    use_patch,
)
from shared.core.values.objects import parse_instant
from shared.devserver.real_servers import real_server
from shared.installation.usage_guard import usage_guards
from tests.builders import COMMAND, copied, not_none
from tests.contract.guarded import BINDINGS, POLICIES, User, allow_all, until
from tests.guarded_kinds import NAMESPACE
from tests.required import required_assets
from tests.usage import context, kind_of, passed, unused_policy

USAGE = f"system:serviceaccount:{NAMESPACE}:usage"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SINCE, HASH, AFTER, USED = (
    f"ttlafterfinished.dev/{name}" for name in ("unused-since", "unused-hash", "deleted-after", "used-at")
)
MERGE = "application/merge-patch+json"
YEAR_AGO = "2025-01-01T00:00:00Z"
NEVER_USED_TOO = unused_policy(
    match={"kinds": ["cm"], "namespaces": {"names": ["ci"]}}, unused={"ttl": "1d", "neverUsed": True}
)
COUNTER = iter(range(1000))


@pytest.fixture(scope="module")
def admin():
    with real_server(required_assets(), fsync=False) as server, closing(User(server)) as admin:
        yield admin


class Thing:
    """A ConfigMap of its own."""

    def __init__(self, admin: User, **fields: Any) -> None:
        self.admin, self.name = admin, f"one-{next(COUNTER)}"
        self.path = f"{CONFIG_MAPS}/{self.name}"
        body = {"metadata": {"name": self.name, **fields.pop("metadata", {})}, "data": {"a": "1", "b": "2"}, **fields}
        self.obj = admin.make(f"{CONFIG_MAPS}?fieldManager=kubectl-create", body)

    def ask(self, method: str, body: Any, manager: str, *, user: User | None = None) -> tuple[int, Any]:
        media = MERGE if method == "PATCH" else "application/json"
        status, said = (user or self.admin).ask(method, f"{self.path}?fieldManager={manager}", body, media=media)
        if status == 200:
            self.obj = {"apiVersion": "v1", "kind": "ConfigMap", **said}
        return status, said

    def patch(self, body: Any, manager: str) -> None:
        status, said = self.ask("PATCH", body, manager)
        assert status == 200, said

    def annotate(self, manager: str = "kubectl-annotate", **annotations: Any) -> None:
        self.patch(
            {"metadata": {"annotations": {f"ttlafterfinished.dev/{k}": v for k, v in annotations.items()}}}, manager
        )

    def mark(self, user: User | None = None) -> None:
        """Mark the object as our code does, at the time of the server."""
        at = max(parse_instant(one["time"]) for one in self.obj["metadata"]["managedFields"])
        status, said = self.ask("PATCH", mark_patch(at, hash_foreign_writes(self.obj, at)), MARK_MANAGER, user=user)
        assert status == 200, said

    def entry(self, manager: str) -> Any:
        found = [one for one in self.obj["metadata"]["managedFields"] if one["manager"] == manager]
        return found[0] if found else None

    def decide(self) -> Any:
        """The decision ten minutes after the last write, with a TTL of a day."""
        now = max(parse_instant(one["time"]) for one in self.obj["metadata"]["managedFields"]) + timedelta(minutes=10)
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": copied(self.obj["metadata"]) | {"namespace": "ci"}}
        passes = passed(now - timedelta(40)), passed(now - timedelta(20))
        return decide_unused(obj, kind_of(obj), now, context(*passes, policy=NEVER_USED_TOO))


def next_second() -> None:
    """Times in managedFields are whole seconds."""
    time.sleep(1.1)


@pytest.fixture
def thing(admin):
    return Thing(admin)


# What the API server notes


def test_merge_patch_is_an_update_by_its_field_manager(thing):
    thing.mark()
    entry = thing.entry(MARK_MANAGER)
    assert (entry["operation"], entry.get("subresource"), entry["apiVersion"]) == ("Update", None, "v1")
    owned = entry["fieldsV1"]["f:metadata"]["f:annotations"]
    assert {f"f:{SINCE}", f"f:{HASH}"} <= owned.keys()


def test_time_of_an_entry_changes_if_its_manager_changes_a_value(thing):
    thing.annotate("writer", note="1")
    before = thing.entry("writer")["time"]
    next_second()
    thing.annotate("writer", note="1")
    assert thing.entry("writer")["time"] == before
    thing.annotate("writer", note="2")
    assert thing.entry("writer")["time"] > before


def test_value_that_another_client_changes_leaves_the_entry_of_its_former_writer(thing):
    thing.mark()
    thing.annotate(**{"unused-since": YEAR_AGO})
    assert f"f:{SINCE}" not in thing.entry(MARK_MANAGER)["fieldsV1"]["f:metadata"]["f:annotations"]
    assert f"f:{SINCE}" in thing.entry("kubectl-annotate")["fieldsV1"]["f:metadata"]["f:annotations"]


def test_removal_changes_fields_and_no_time(thing):
    before = [(one["manager"], one["time"]) for one in thing.obj["metadata"]["managedFields"]]
    next_second()
    thing.patch({"data": {"a": None}}, "remover")
    assert [(one["manager"], one["time"]) for one in thing.obj["metadata"]["managedFields"]] == before
    assert "f:a" not in thing.entry("kubectl-create")["fieldsV1"]["f:data"]


def test_announcement_leaves_the_time_of_the_mark(thing):
    thing.mark()
    before = thing.entry(MARK_MANAGER)["time"]
    next_second()
    thing.patch(announcement_patch(parse_instant("2030-01-01T00:00:00Z")), ANNOUNCEMENT_MANAGER)
    assert thing.entry(MARK_MANAGER)["time"] == before
    assert not_none(read_announcement(thing.obj)).written_at > parse_instant(before)


def test_creator_is_noted_as_the_writer_of_each_field_whatever_it_sent(admin):
    forged = Thing(
        admin, metadata={"annotations": {SINCE: YEAR_AGO, HASH: "0"}, "managedFields": [forged_entry(YEAR_AGO)]}
    )
    assert forged.entry(MARK_MANAGER) is None
    assert forged.entry("kubectl-create")["fieldsV1"]["f:metadata"]["f:annotations"].keys() >= {f"f:{SINCE}"}


def forged_entry(at: str, manager: str = MARK_MANAGER, *annotations: str) -> dict[str, Any]:
    fields: Any = {"f:metadata": {"f:annotations": {f"f:{name}": {} for name in annotations or (SINCE, HASH)}}}
    about = {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
    return {**about, "time": at, "fieldsV1": fields}


# What is believed


@pytest.mark.parametrize(
    "metadata", [{}, {"labels": {"app": "web"}, "annotations": {"team": "web"}}], ids=["bare", "full"]
)
def test_our_own_writes_are_no_change(admin, metadata):
    thing = Thing(admin, metadata=metadata)
    next_second()
    thing.annotate("other-client", **{"unused-since": YEAR_AGO, "deleted-after": YEAR_AGO})
    next_second()
    thing.mark()
    later = parse_instant("2030-01-01T00:00:00Z")
    for at in (None, later, None, later):
        thing.patch(announcement_patch(at), ANNOUNCEMENT_MANAGER)
        next_second()
    # The mark has the time of the write before it, in another second than its own.
    assert read_unused_mark(thing.obj) == parse_instant(thing.entry(MARK_MANAGER)["time"])
    assert not is_changed_since_mark(thing.obj)


CHANGES = {
    "a data key is removed": {"data": {"a": None}},
    "a value is changed": {"data": {"a": "2"}},
    "a label is removed": {"metadata": {"labels": {"app": None}}},
    "a hold is removed": {"metadata": {"annotations": {"ttlafterfinished.dev/hold": None}}},
    "an owner is added": {
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}
    },
}


@pytest.mark.parametrize("manager", ["kubectl-create", "another", MARK_MANAGER, ANNOUNCEMENT_MANAGER])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_is_found_whichever_manager_it_names(admin, change, manager):
    metadata = {"labels": {"app": "web"}, "annotations": {"ttlafterfinished.dev/hold": "why"}}
    thing = Thing(admin, metadata=metadata)
    next_second()
    thing.mark()
    assert not is_changed_since_mark(thing.obj)
    next_second()
    thing.patch(change, manager)
    assert is_changed_since_mark(thing.obj)


@pytest.mark.parametrize("manager", ["kubectl-annotate", "ttl-after-finished", MARK_MANAGER])
def test_mark_of_another_client_deletes_nothing(thing, manager):
    thing.annotate(manager, **{"unused-since": YEAR_AGO, "unused-hash": "0"})
    assert isinstance(thing.decide(), SetMark)
    at = parse_instant(thing.obj["metadata"]["creationTimestamp"])
    thing.annotate(
        manager,
        **{"unused-since": at.strftime("%Y-%m-%dT%H:%M:%SZ"), "unused-hash": hash_foreign_writes(thing.obj, at)},
    )
    assert not isinstance(thing.decide(), DeleteUnused)


def test_object_with_more_writers_than_the_api_server_notes_is_marked_at_most_three_times(thing):
    """It keeps ten entries, and merges the oldest."""
    for number in range(12):
        thing.patch({"data": {f"k{number}": "1"}}, f"writer-{number}")
    for _ in range(3):
        next_second()
        thing.mark()
        thing.patch(announcement_patch(parse_instant("2030-01-01T00:00:00Z")), ANNOUNCEMENT_MANAGER)
        if read_unused_mark(thing.obj) and not is_changed_since_mark(thing.obj):
            return
    pytest.fail("the object is marked again and again")


def test_record_of_use_counts_only_if_our_field_manager_wrote_it(thing):
    now = parse_instant(thing.obj["metadata"]["creationTimestamp"])
    for manager in ("kubectl-annotate", MARK_MANAGER):
        thing.patch(use_patch(now, is_marked=False), manager)
        assert read_used_at(thing.obj) is None
        thing.patch({"metadata": {"annotations": {USED: None}}}, manager)
    thing.patch(use_patch(now, is_marked=False), USE_MANAGER)
    assert read_used_at(thing.obj) is not None
    next_second()
    thing.mark()
    assert not is_changed_since_mark(thing.obj)
    thing.annotate(**{"used-at": YEAR_AGO})
    assert read_used_at(thing.obj) is None


def test_object_that_was_created_without_a_field_is_attested_only_after_a_server_side_apply(admin):
    """As `kubectl create configmap NAME` makes it: no later update is noted."""
    empty = Thing(admin)
    created = admin.make(f"{CONFIG_MAPS}?fieldManager=kubectl-create", {"metadata": {"name": f"{empty.name}-empty"}})
    empty.path, now = f"{CONFIG_MAPS}/{empty.name}-empty", parse_instant(created["metadata"]["creationTimestamp"])
    empty.patch({"data": {"a": "1"}}, "kubectl-edit")
    empty.patch(use_patch(now, is_marked=False), USE_MANAGER)
    assert "managedFields" not in empty.obj["metadata"]
    assert read_used_at(empty.obj) is None
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{empty.name}-empty"}, "data": {"b": "1"}}
    path = f"{empty.path}?fieldManager=kubectl"
    assert admin.ask("PATCH", path, applied, media="application/apply-patch+yaml")[0] == 200
    empty.patch({"metadata": {"annotations": {USED: None}}}, "kubectl-edit")
    empty.patch(use_patch(now, is_marked=False), USE_MANAGER)
    assert read_used_at(empty.obj) is not None


# The guard


@pytest.fixture(scope="module")
def guarded(admin):
    """A server with the guards, and the account of `usage`."""
    allow_all(admin, USAGE)
    for made in usage_guards(NAMESPACE):
        admin.make(POLICIES if made.body["kind"] == "ValidatingAdmissionPolicy" else BINDINGS, made.body)
    probe = Thing(admin)
    until(lambda: probe.ask("PATCH", {"metadata": {"annotations": {SINCE: _now()}}}, MARK_MANAGER)[0] == 403)
    with closing(User(admin.server, USAGE)) as usage:
        until(lambda: probe.ask("PATCH", {"data": {"b": _now()}}, "usage", user=usage)[0] == 403)
        yield usage


def _now() -> str:
    """Another text for each probe, not older than the object."""
    time.sleep(1)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@pytest.fixture
def marked(admin, guarded):
    thing = Thing(admin)
    next_second()
    thing.mark(guarded)
    assert read_unused_mark(thing.obj)
    return thing


@pytest.mark.parametrize("manager", [MARK_MANAGER, ANNOUNCEMENT_MANAGER, USE_MANAGER])
@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"annotations": {SINCE: "2030-01-01T00:00:00Z"}}},
        {"metadata": {"annotations": {AFTER: YEAR_AGO}}},
        {"metadata": {"annotations": {HASH: "0"}}},
        {"metadata": {"annotations": {USED: YEAR_AGO}}},
        {"data": {"a": "3"}},
    ],
    ids=["mark", "announcement", "hash", "record of use", "data"],
)
def test_guard_rejects_another_client_under_the_name_of_our_field_manager(marked, manager, body):
    next_second()
    status, said = marked.ask("PATCH", body, manager)
    assert (status, "mark: only ttl-after-finished writes" in said["message"]) == (403, True)


@pytest.mark.parametrize("at", ["unused since then", "earlier"])
def test_guard_rejects_forged_entries(admin, guarded, at):
    """In two steps: the value first, as its own, and then the entries alone."""
    thing = Thing(admin)
    next_second()
    if at == "earlier":
        thing.mark(guarded)
    created = thing.obj["metadata"]["creationTimestamp"]
    thing.annotate(**{"unused-since": created, "unused-hash": "0"})
    assert read_unused_mark(thing.obj) is None
    obj = copied(thing.obj)
    others = [
        one for one in obj["metadata"]["managedFields"] if one["manager"] not in (MARK_MANAGER, "kubectl-annotate")
    ]
    obj["metadata"]["managedFields"] = [*others, forged_entry(created)]
    status, said = thing.ask("PUT", obj, "forger")
    assert (status, "mark: only ttl-after-finished writes" in said["message"]) == (403, True)


def test_guard_rejects_a_forged_record_of_use(admin, guarded):
    """At once, and in two steps: the value as its own, and then the entries alone."""
    thing = Thing(admin)
    next_second()
    now = parse_instant(thing.obj["metadata"]["creationTimestamp"])
    record = use_patch(now, is_marked=False)
    assert thing.ask("PATCH", record, USE_MANAGER)[0] == 403
    thing.patch(record, "forger")
    obj = copied(thing.obj)
    others = [one for one in obj["metadata"]["managedFields"] if one["manager"] != "forger"]
    created = thing.obj["metadata"]["creationTimestamp"]
    obj["metadata"]["managedFields"] = [*others, forged_entry(created, USE_MANAGER, USED)]
    assert thing.ask("PUT", obj, "forger")[0] == 403
    assert read_used_at(thing.obj) is None
    assert thing.ask("PATCH", {"metadata": {"annotations": {USED: None}}}, "forger")[0] == 200
    assert thing.ask("PATCH", record, USE_MANAGER, user=guarded)[0] == 200
    assert read_used_at(thing.obj) is not None


def test_guard_admits_what_other_clients_write_under_their_own_name(marked):
    """A controller that copies annotations must not fail; such a mark does not count."""
    marked.annotate("replicator", **{"unused-since": YEAR_AGO, "unused-hash": "0", "deleted-after": YEAR_AGO})
    marked.patch({"data": {"a": "3"}}, "replicator")
    assert read_unused_mark(marked.obj) is None
    assert read_announcement(marked.obj) is None
    assert marked.ask("PUT", marked.obj, "another")[0] == 200


def test_guard_admits_the_removal_of_marks_and_changes_by_other_clients(marked, guarded):
    marked.annotate("kubectl-annotate", **{"unused-since": None})
    assert read_unused_mark(marked.obj) is None
    marked.annotate("kubectl-annotate", **{"unused-hash": None})
    assert not is_marked(marked.obj)
    marked.mark(guarded)
    marked.patch({"data": {"b": "4"}}, "kubectl-edit")
    assert is_changed_since_mark(marked.obj)
    plain = {"metadata": {"name": marked.name}, "data": {"a": "5"}}
    assert marked.ask("PUT", plain, "kubectl-replace")[0] == 200


def test_guard_admits_an_export_that_is_created_again_with_its_entries(admin, marked):
    """As a backup tool does: the mark is older than the new object, so it does not count."""
    exported = copied(marked.obj["metadata"])
    assert admin.ask("DELETE", marked.path)[0] == 200
    next_second()
    body = {"metadata": {"name": marked.name, "annotations": exported["annotations"]}, "data": {"a": "1", "b": "2"}}
    again = admin.make(f"{CONFIG_MAPS}?fieldManager=backup", body)
    assert again["metadata"]["annotations"] == exported["annotations"]
    marked.obj = again
    marked.patch({"metadata": {"managedFields": exported["managedFields"]}}, "backup")
    assert marked.entry(MARK_MANAGER) == exported["managedFields"][-1]
    assert read_unused_mark(marked.obj) is None


def test_our_account_marks_announces_and_removes_under_the_guard(marked, guarded):
    at = parse_instant("2030-01-01T00:00:00Z")
    for patch, manager in ((announcement_patch(at), ANNOUNCEMENT_MANAGER), (unmark_patch(), MARK_MANAGER)):
        assert marked.ask("PATCH", patch, manager, user=guarded)[0] == 200
    assert not is_marked(marked.obj)
    assert read_announcement(marked.obj) is None


def test_hold_and_release_remove_the_mark_under_the_guard(admin, marked):
    where = ["-n", "default", "--kubeconfig", str(admin.server.kubeconfig)]
    for words in (["hold", f"configmap/{marked.name}", "--reason", "why"], ["release", f"configmap/{marked.name}"]):
        done = subprocess.run([*COMMAND, *words, *where], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        marked.obj = admin.ask("GET", marked.path)[1]
        assert not is_marked(marked.obj)
    assert marked.entry(MARK_MANAGER) is None
