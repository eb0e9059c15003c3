"""The object that a restore creates, made of an archived object; pure.

A restored object is a new object: it gets another uid, and its controller starts it again unless it is created
suspended, or unless its status is restored with it.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from shared.core.archive.server_fields import (
    QUEUE_LABEL,
    find_applying,
    find_resuming,
    without_marks,
    without_server_fields,
)
from shared.core.deadlines.deadline import DEADLINE_EXCEEDED, STOPPED_GENERATION, STOPS, is_merged
from shared.core.decision.finish import finish_of
from shared.core.kinds.rule import KindRule
from shared.core.ttl.edits import HELD_TTL, find_held_problem, hold
from shared.core.values.objects import ANNOTATION_DOMAIN, get_annotations, get_in, get_text, list_mappings, ref_of

_STEP = re.compile(r"(?:^|\.)([^.\[\]\s]+)|\[([^\[\]]+)\]")
_IDENTITY = ("apiVersion", "kind", "metadata", "metadata.name", "metadata.namespace")
_ABSENT = object()

_NAMED = re.compile(r"\b(?:spec|metadata|data)(?:\.[\w-]+|\[[^\[\]\s]+\])+")
_WORD = re.compile(r"[A-Za-z]{8,}")
_REQUIRED = ("containers", "template")
"""Fields of a spec that are words of many messages, and without which an object is never valid."""


@dataclass(frozen=True, slots=True)
class FieldPath:
    """A field of an object.

    Attributes:
        text: The path as the API server names it: `spec.tolerations[0]`, `metadata.labels[example.com/team]`.
        steps: The names and the indices.
    """

    text: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        """The path as it was given."""
        return self.text

    def is_in(self, obj: Any) -> bool:
        """Whether an object has the field."""
        return _get(obj, self.steps) is not _ABSENT


def parse_field_path(text: str) -> FieldPath:
    """Parse the path of a field that a restored object may lack.

    Raises:
        ValueError: It is no path, or the object would be another one without the field.
    """
    steps, end = list[str](), 0
    for match in _STEP.finditer(text):
        if match.start() != end:
            break
        steps.append(match[1] or match[2])
        end = match.end()
    if not steps or end != len(text):
        expected = "expected the path of a field, such as spec.tolerations[0] or metadata.labels[example.com/team]"
        raise ValueError(f"{expected}, got {text!r}")
    if ".".join(steps) in _IDENTITY:
        raise ValueError(f"expected a field that a restore can leave out, got {text}: it says which object it is")
    return FieldPath(text, tuple(steps))


def without_fields(obj: dict[str, Any], paths: Sequence[FieldPath]) -> dict[str, Any]:
    """The object without fields; the argument is not changed.

    Indices are those of the given object, so two elements of one list can be left out.
    """
    left: dict[str, Any] = _without(obj, [path.steps for path in paths if path.is_in(obj)])
    return left


def find_named(message: str, obj: Any) -> list[str]:
    """The fields of an object that a refusal of the API server names, at most three.

    A validation names the path of a field. An admission plugin writes a sentence, whose words are compared with the
    names of the fields in the spec: `no PriorityClass with name` means `spec.priorityClassName`.
    """
    paths = [match[0].rstrip(".") for match in _NAMED.finditer(message)]
    named = [path for path in paths if _is_field(path, obj)]
    if not named:
        words = {word.lower() for word in _WORD.findall(message)}
        spec = get_in(obj, "spec")
        names = [name for name in spec if isinstance(name, str)] if isinstance(spec, dict) else []
        named = [
            f"spec.{name}"
            for name in names
            if name not in _REQUIRED and any(name.lower().startswith(word) for word in words)
        ]
    return list(dict.fromkeys(named))[:3]


def _is_field(text: str, obj: Any) -> bool:
    try:
        return parse_field_path(text).is_in(obj)
    except ValueError:
        return False


def _get(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step, _ABSENT)
        elif isinstance(value, list) and step.isascii() and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _without(value: Any, paths: Sequence[Sequence[str]]) -> Any:
    """The value without the fields that exist at these paths."""
    ends = {path[0] for path in paths if len(path) == 1}
    deeper: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        if path[0] not in ends:
            deeper.setdefault(path[0], []).append(path[1:])
    if isinstance(value, dict):
        return {k: _without(v, deeper[k]) if k in deeper else v for k, v in value.items() if k not in ends}
    gone, inner = {int(end) for end in ends}, {int(index): rest for index, rest in deeper.items()}
    return [_without(one, inner[i]) if i in inner else one for i, one in enumerate(value) if i not in gone]


HOLD_REASON = "restored from the archive"
"""The value of the annotation `hold` on a restored object."""

_INERT = {
    ("", "ConfigMap"),
    ("", "Event"),
    ("", "PersistentVolumeClaim"),
    ("", "Secret"),
    ("", "ServiceAccount"),
    ("coordination.k8s.io", "Lease"),
    ("events.k8s.io", "Event"),
}
"""Kinds that run nothing."""

_SAVED = f"{ANNOTATION_DOMAIN}/{HELD_TTL}"

_DONE_ONCE = {
    "results.tekton.dev/": "Tekton Results has not stored the new object",
    "chains.tekton.dev/": "Tekton Chains has not signed the new object",
}
"""The prefixes of annotations that say what a controller has done to one object, and why a restore leaves them out."""

_ASKED_FOR = ("chains.tekton.dev/transparency-upload",)
"""Annotations with such a prefix that a person writes."""

_MARKS = tuple(f"{ANNOTATION_DOMAIN}/{name}" for name in (DEADLINE_EXCEEDED, STOPS, STOPPED_GENERATION))


@dataclass(frozen=True, slots=True)
class Draft:
    """An object that a restore may create.

    Attributes:
        obj: The object.
        rule: The rule of its kind; None if there is none.
        notes: What was changed, in sentences.
        is_suspended: Whether it has the patch with which it does not run.
        resume: The merge patch that lets a suspended object run.
        runs: Whether its controller runs it again once it is created.
        is_finished: Whether it does not run because its status is restored with it. Its kind may drop the status or a
            field of it, so the object that the API server would store has to be checked by `is_finished`.
        queue: The queue of Kueue that was left out; empty if there was none.
    """

    obj: dict[str, Any]
    rule: KindRule | None
    notes: tuple[str, ...] = ()
    is_suspended: bool = False
    resume: Mapping[str, Any] = field(default_factory=dict)
    runs: bool = True
    is_finished: bool = False
    queue: str = ""

    @property
    def suspending_patch(self) -> Mapping[str, Any]:
        """The merge patch with which objects of the kind do not run; empty if the kind has none."""
        return (self.rule and self.rule.create_suspended) or {}

    def suspended(self) -> "Draft":
        """The same object, suspended, and without what would resume it. Its kind must have a patch for that."""
        patch, resume = self.suspending_patch, reverse_of(self.suspending_patch, _started(self.obj, self.rule))
        obj = merged(self.obj, patch)
        return _without_resuming(replace(self, obj=obj, is_suspended=True, resume=resume, runs=False))

    def held(self) -> "Draft":
        """The same object with a hold, and without the TTL fields of its kind, which a release restores.

        It is not changed if objects of its kind are never deleted. A hold that it has stays.
        """
        if self.rule is None or self.rule.never_finishes:
            return self
        obj, notes = self.obj, self.notes
        if find_held_problem(obj, self.rule):
            obj = merged(obj, {"metadata": {"annotations": {_SAVED: None}}})
            notes = (*notes, f"annotation {_SAVED} is left out: the saved TTL cannot be read")
        former = get_annotations(obj).get("hold")
        reason = former if isinstance(former, str) and former.strip() else HOLD_REASON
        edit = hold(obj, self.rule, reason, is_new=True)
        return replace(self, obj=merged(obj, edit.patch(obj)), notes=(*notes, *edit.message))


def make_draft(
    obj: dict[str, Any],
    rule: KindRule | None,
    *,
    stores_status: bool,
    lost_owners: Collection[str] = (),
    leave_out: Sequence[FieldPath] = (),
) -> Draft:
    """Make the object that a restore may create; the archived object is not changed.

    Args:
        obj: The archived object.
        rule: The rule of its kind; None if there is none.
        stores_status: Whether the API server stores the status of a new object, because the kind has no subresource
            for it.
        lost_owners: The uids of owners that no longer exist, or that are being deleted.
        leave_out: The fields that a person asks to leave out; the object may lack some of them.
    """
    asked = [path for path in leave_out if path.is_in(obj)]
    obj = without_fields(obj, asked)
    draft = without_server_fields(obj, with_status=stores_status)
    notes = [f"left out, as --leave-out says: {', '.join(map(str, asked))}"] if asked else list[str]()
    if lost := [one for one in list_mappings(draft, "metadata.ownerReferences") if one.get("uid") in lost_owners]:
        draft = _without_owners(draft, lost_owners)
        notes += [
            f"its owner {get_text(one, 'kind')} {get_text(one, 'name')}, uid {get_text(one, 'uid')}, no longer "
            "exists or is being deleted: the reference is left out"
            for one in lost
        ]
    draft, left_out = _without_marks(_without_stop(draft, rule, notes))
    notes += left_out
    if isinstance(get_in(obj, "spec.ephemeralContainers"), list) and obj.get("kind") == "Pod":
        notes.append("its ephemeral containers are left out: a new Pod cannot have any")
    if (volume := get_text(obj, "spec.volumeName")) and not get_text(draft, "spec.volumeName"):
        notes.append(f"its volume {volume} is left out: the new claim gets another volume, without the data")
    return _with_state(Draft(draft, rule, tuple(notes)), stores_status=stores_status)


def _without_stop(obj: dict[str, Any], rule: KindRule | None, notes: list[str]) -> dict[str, Any]:
    """The object without the fields by which it was stopped at its deadline: the new one would end at once.

    Fields that only suspend it stay: they do not end the new object.
    """
    annotations = get_in(obj, "metadata.annotations")
    if not isinstance(annotations, dict) or not any(name in annotations for name in _MARKS):
        return obj
    started = _started(obj, rule)
    if started != obj:
        notes.append("what stopped it at its deadline is left out: the new object would be stopped at once")
    return started


def _started(obj: dict[str, Any], rule: KindRule | None) -> dict[str, Any]:
    """The object without the fields that a stop of its kind sets, but for those that only suspend it."""
    for stop in rule.deadline.patches if rule is not None and rule.deadline is not None else ():
        if is_merged(obj, stop.patch) and not is_merged(rule and rule.create_suspended, stop.patch):
            obj = merged(obj, reverse_of(stop.patch, {}))
    return obj


def _without_marks(obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The object without annotations that are true of the archived object only, and a note for each kind of them."""
    annotations, notes = get_in(obj, "metadata.annotations"), list[str]()
    if not isinstance(annotations, dict):
        return obj, notes
    marks = [name for name in _MARKS if name in annotations]
    if marks:
        notes.append("the mark of its stop at a deadline is left out: the new object was not stopped")
    names = marks
    for prefix, why in _DONE_ONCE.items():
        done = sorted(name for name in annotations if name.startswith(prefix) and name not in _ASKED_FOR)
        if done:
            notes.append(f"annotations left out, as {why}: {', '.join(done)}")
        names = [*names, *done]
    return (merged(obj, {"metadata": {"annotations": dict.fromkeys(names)}}) if names else obj), notes


def _with_state(draft: Draft, *, stores_status: bool) -> Draft:
    """The same draft, with whether it is suspended, and whether it would run."""
    obj, rule, patch = draft.obj, draft.rule, draft.suspending_patch
    if patch and is_merged(obj, patch):
        return _without_resuming(replace(draft, is_suspended=True, resume=reverse_of(patch, {}), runs=False))
    if (ref_of(obj).group, obj.get("kind")) in _INERT:
        return replace(draft, runs=False)
    if stores_status and is_finished(obj, rule):
        note = "its status is restored with it, because its kind has no status subresource: it counts as finished"
        return replace(draft, notes=(*draft.notes, note), runs=False, is_finished=True)
    return draft


def _without_resuming(draft: Draft) -> Draft:
    """The same suspended draft without the marks by which a controller would start it."""
    marks = find_resuming(draft.obj)
    left_out = [f"{one} is left out: {one.controller} would start the object" for one in marks]
    queue = next((one.value for one in marks if one.name == QUEUE_LABEL), "")
    notes = (*draft.notes, *left_out, *find_applying(draft.obj))
    return replace(draft, obj=without_marks(draft.obj, marks), notes=notes, queue=queue)


def is_finished(obj: Any, rule: KindRule | None) -> bool:
    """Whether an object counts as finished by the rule of its kind."""
    return rule is not None and finish_of(obj, rule).finished is True


def merged(obj: Any, patch: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a JSON merge patch (RFC 7396): null removes a field, and a mapping is merged."""
    result = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            result[key] = merged(result.get(key), value)
        else:
            result[key] = value
    return result


def reverse_of(patch: Mapping[str, Any], obj: Any) -> dict[str, Any]:
    """The merge patch that undoes another one, which is applied to an object: null removes a field that was not set."""
    before = obj if isinstance(obj, dict) else {}
    return {
        key: reverse_of(value, before.get(key)) if isinstance(value, Mapping) else before.get(key)
        for key, value in patch.items()
        if before.get(key) != value
    }


def find_dropped(sent: Any, stored: Any, path: str = "") -> list[str]:
    """The paths of the fields that were sent and are not in the object that the API server would store."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        found = []
        for key, value in sent.items():
            place = f"{path}.{key}" if path else str(key)
            if key not in stored and value not in (None, {}, [], ""):
                found.append(place)
            elif key in stored:
                found += find_dropped(value, stored[key], place)
        return found
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        pairs = enumerate(zip(sent, stored, strict=True))
        return [one for index, (a, b) in pairs for one in find_dropped(a, b, f"{path}[{index}]")]
    return []


def _without_owners(obj: dict[str, Any], uids: Collection[str]) -> dict[str, Any]:
    metadata = dict(obj["metadata"])
    left = [one for one in metadata["ownerReferences"] if not (isinstance(one, dict) and one.get("uid") in uids)]
    if left:
        metadata["ownerReferences"] = left
    else:
        del metadata["ownerReferences"]
    return {**obj, "metadata": metadata}
