"""Marks against other clients: whatever they write, no object is deleted before its TTL has passed since its mark.

The clients use any field manager, our own included, and write any annotation, label or data key. They cannot forge
`managedFields`: these are kept by the model of the API server. `tests/contract/test_mark_attestation.py` compares what
the model and the marks rely on with a real API server.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from shared.core.policy.usage import CONFIG_MAPS
from shared.core.usage.decide_unused import DeleteUnused, RemoveMark, SetMark, UnusedDecision, decide_unused
from shared.core.usage.mark import (
    ANNOUNCEMENT_MANAGER,
    DELETED_AFTER,
    MARK_MANAGER,
    UNUSED_HASH,
    UNUSED_SINCE,
    USE_MANAGER,
    announcement_patch,
    hash_foreign_writes,
    mark_patch,
    unmark_patch,
    use_patch,
)
from shared.core.values.objects import ANNOTATION_DOMAIN, ANNOUNCED_LABEL, format_instant, get_annotations
from shared.devserver.apiserver.writes import manage, merge_patch
from tests.builders import LONG_AGO, NOW, copied
from tests.usage import DAY, config_map, context, passed

TTL = timedelta(days=1)
OURS = (UNUSED_SINCE, UNUSED_HASH, DELETED_AFTER)
managers = st.sampled_from(["kubectl", "helm", "ttl-after-finished", MARK_MANAGER, MARK_MANAGER, ANNOUNCEMENT_MANAGER])
steps = st.sampled_from([0, 0, 0.4, 1, 601, 3600, DAY - 1, DAY - 1, DAY, DAY + 1])
values = st.sampled_from([None, "1", "2"])
ages = st.sampled_from([0, 1, 300, 599, 601, DAY, 2 * DAY, 29 * DAY, -DAY])


@dataclass
class Server:
    """A ConfigMap as the API server stores it, and when it was marked and changed."""

    now: datetime = NOW
    obj: dict[str, Any] = field(default_factory=dict)
    marked_at: datetime = LONG_AGO
    changed_at: datetime = LONG_AGO

    def __post_init__(self) -> None:
        self.obj = config_map(used=None, labels={"app": "web"}, annotations={"team": "web"}) | {
            "data": {"a": "1", "b": "1"}
        }
        created = manage(self.obj, None, format_instant(LONG_AGO), manager="kubectl", subresource="")
        self.obj["metadata"]["managedFields"] = created
        now, self.now = self.now, LONG_AGO
        self.write(use_patch(LONG_AGO, is_marked=False), USE_MANAGER)
        self.now = now

    def write(self, change: dict[str, Any], manager: str) -> None:
        """A merge patch by a field manager; one that changes nothing is no write."""
        old, second = self.obj, self.now.replace(microsecond=0)
        new = merge_patch(change)(copied(old))
        if new == old:
            return
        new["metadata"]["managedFields"] = manage(new, old, format_instant(second), manager=manager, subresource="")
        self.obj = new
        if UNUSED_SINCE in get_annotations(new) and get_annotations(new)[UNUSED_SINCE] != get_annotations(old).get(
            UNUSED_SINCE
        ):
            self.marked_at = second
        if _content(new) != _content(old):
            self.changed_at = second

    def decide(self) -> UnusedDecision:
        """The decision that two passes of the last seconds confirm."""
        passes = (passed(self.now - timedelta(seconds=end), seconds=0) for end in (2, 1))
        return decide_unused(self.obj, CONFIG_MAPS, self.now, context(*passes))

    def tick(self) -> None:
        """What `usage` writes by the present decision."""
        match self.decide():
            case SetMark() as mark:
                self.write(mark_patch(mark.at, mark.hash_of_writes), MARK_MANAGER)
            case RemoveMark():
                self.write(unmark_patch(), MARK_MANAGER)
            case _:
                self.write(announcement_patch(self.now), ANNOUNCEMENT_MANAGER)


def _content(obj: dict[str, Any]) -> Any:
    """All of an object but the marks and what the API server sets."""
    annotations = {k: v for k, v in obj["metadata"].get("annotations", {}).items() if _name(k) not in OURS}
    labels = {k: v for k, v in obj["metadata"].get("labels", {}).items() if k != ANNOUNCED_LABEL}
    return annotations, labels, obj.get("data")


def _name(key: str) -> str:
    return key.removeprefix(f"{ANNOTATION_DOMAIN}/")


def forge(server: Server, data: st.DataObject, names: set[str]) -> dict[str, Any]:
    """A mark of another client, which knows the right hash."""
    at = server.now - timedelta(seconds=data.draw(ages))
    values = dict.fromkeys(OURS, format_instant(at)) | {UNUSED_HASH: hash_foreign_writes(server.obj, at)}
    return {"metadata": {"annotations": {f"{ANNOTATION_DOMAIN}/{name}": values[name] for name in sorted(names)}}}


def change(data: st.DataObject) -> dict[str, Any]:
    """Any other change, also one that removes a mark."""
    places = [("data", "a"), ("data", "b"), ("labels", "app"), ("labels", ANNOUNCED_LABEL), ("annotations", "team")]
    key, name = data.draw(st.sampled_from([*places, *(("annotations", f"{ANNOTATION_DOMAIN}/{one}") for one in OURS)]))
    change = {key: {name: data.draw(values)}}
    return change if key == "data" else {"metadata": change}


def write_as_another(server: Server, data: st.DataObject) -> None:
    match data.draw(st.sampled_from(["forge", "forge a part", "change"])):
        case "forge":
            server.write(forge(server, data, {*OURS}), data.draw(managers))
        case "forge a part":
            server.write(
                forge(server, data, data.draw(st.sets(st.sampled_from(OURS), min_size=1))), data.draw(managers)
            )
        case _:
            server.write(change(data), data.draw(managers))


@given(st.data())
def test_no_write_of_another_client_deletes_an_object_before_its_ttl(data):
    server = Server()
    for _ in range(data.draw(st.integers(1, 12))):
        server.now += timedelta(seconds=data.draw(steps))
        if data.draw(st.booleans()):
            server.tick()
        else:
            write_as_another(server, data)
        decision = server.decide()

        if isinstance(decision, DeleteUnused):
            assert server.marked_at + TTL <= server.now
            assert server.changed_at + TTL <= server.now


def _is_hidden_by_announcements(server: Server) -> bool:
    entries = server.obj["metadata"]["managedFields"]
    foreign = [one for one in entries if one["manager"] == ANNOUNCEMENT_MANAGER]
    return any(one["fieldsV1"].keys() != {"f:metadata"} or "app" in str(one) or "team" in str(one) for one in foreign)


@given(st.data())
def test_after_the_writes_of_other_clients_ticks_mark_once_and_delete_after_the_ttl(data):
    """No mark, entry or hash of another client keeps an object for ever, or has it marked at each tick.

    There is one exception: a client that writes other fields under the name of the announcement's field manager. Each
    announcement then has the look of a change, so the object is kept.
    """
    server = Server()
    for _ in range(data.draw(st.integers(0, 8))):
        server.now += timedelta(seconds=data.draw(steps))
        write_as_another(server, data)
    assume(not _is_hidden_by_announcements(server))
    server.now += timedelta(days=2)
    server.tick()
    marked = server.decide()
    if isinstance(marked, DeleteUnused):  # a client wrote a whole mark as our field manager, and its TTL is over
        assert server.marked_at + TTL <= server.now
        return

    assert not isinstance(marked, SetMark)
    server.now += TTL + timedelta(seconds=3)
    assert isinstance(server.decide(), DeleteUnused)
