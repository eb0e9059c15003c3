"""The guards for Secrets and ConfigMaps: admission policies by which our accounts cannot delete a used object by a bug.

The API server cannot find references at admission. It does check what never may be deleted, the preconditions, and that
the object is marked and announced. A change may only concern our mark, our announcement and our record of use.

The attestation guard binds all other users. A mark counts only if `metadata.managedFields` shows that our field manager
wrote it. A client can only forge that under the name of our field manager, or by entries of its own making: the guard
rejects both. It admits an annotation that another client writes under its own name, because such a mark does not count.
A controller that copies a Secret with its annotations into other namespaces must not fail because of our mark, and
neither must a restore or `kubectl apply` of an exported object. A CREATE is not bound: the API server notes its creator
as the writer of each field.
"""

from collections.abc import Iterator
from typing import Any

from shared.core.kinds.cel_text import SET_BY_SERVER, both, is_same_beside, list_of
from shared.core.kinds.rule import KindRule
from shared.core.policy.usage import CONFIG_MAPS, SECRETS
from shared.core.usage.mark import (
    ANNOUNCEMENT_MANAGER,
    DELETED_AFTER,
    MARK_MANAGER,
    UNUSED_HASH,
    UNUSED_SINCE,
    USE_MANAGER,
    USED_AT,
)
from shared.core.usage.never_collected import (
    ANNOTATIONS_READ,
    CLUSTER_CONFIG_MAPS,
    LABEL_VALUES_READ,
    LABELS_READ,
    LEADER,
    NAMES_READ,
    SECRET_TYPES,
    SERVICE_ACCOUNT_NAME,
    SYSTEM_NAMESPACES,
)
from shared.core.values.objects import ANNOTATION_DOMAIN, ANNOUNCED_LABEL
from shared.installation.guards import Guarded, binds, guard_name, kept, make_guard, stop_guard_name
from shared.installation.kind_manifests import Manifest, label_of
from shared.installation.rbac import WRITERS
from shared.safeguards.state_schema import NAME as STATE

ACCOUNTS = (*WRITERS, "usage")
"""The ServiceAccounts that may not delete a Secret or a ConfigMap in another way."""

CHANGERS = ("usage", "standalone")
"""The workloads that mark and delete unused objects; each has a ServiceAccount of its name."""

_NOT_CHECKED = "references, the TTL and the clock; opt-in and policies; whether the object has changed"
_MARKS = tuple(f"{ANNOTATION_DOMAIN}/{name}" for name in (UNUSED_SINCE, UNUSED_HASH, DELETED_AFTER))
_RECORD = f"{ANNOTATION_DOMAIN}/{USED_AT}"
_OLD_LABELS = "oldObject.metadata.?labels.orValue({})"
_OLD_ANNOTATIONS = "oldObject.metadata.?annotations.orValue({})"
_DELETE_COMMENT = "Rejects a DELETE from our accounts that is not the DELETE of a marked and announced object."
_CHANGE_COMMENT = "Rejects a change by our accounts of anything but the mark, the announcement and the record of use."
_ATTESTATION_COMMENT = "Rejects a change by any other client that would forge one of these."
_BINDING_COMMENT = "Puts the policy in force."

_MANAGERS = (MARK_MANAGER, ANNOUNCEMENT_MANAGER, USE_MANAGER)
_IS_OURS = f"entry.?manager.orValue('') in {list_of(_MANAGERS)}"
_ATTESTATION_PREFIX = "ttl-after-finished-attestation-guard-"
_NOT_ATTESTED = "marks and announcements that another field manager wrote: they do not count"
_INSTANT = "^[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}([.][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"

_Validations = Iterator[tuple[str, str]]


def usage_guards(namespace: str) -> Iterator[Manifest]:
    """Make the admission policies and bindings for Secrets and ConfigMaps.

    Args:
        namespace: The namespace of the installation whose accounts the policies bind.
    """
    for rule in (CONFIG_MAPS, SECRETS):
        made = (
            (_DELETE_COMMENT, _delete_guard(rule, namespace)),
            (_CHANGE_COMMENT, _change_guard(rule, namespace)),
            (_ATTESTATION_COMMENT, _attestation_guard(rule, namespace)),
        )
        for comment, (policy, binding) in made:
            yield Manifest(comment, policy)
            yield Manifest(_BINDING_COMMENT, binding)


def _delete_guard(rule: KindRule, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return make_guard(
        guard_name(rule),
        Guarded("delete-guard", "ttl-after-finished-deletes", "DELETE", _NOT_CHECKED),
        [rule],
        variables={},
        validations=_deletable(rule),
        condition=binds(namespace, accounts=ACCOUNTS),
    )


def _change_guard(rule: KindRule, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The shared state of an installation is a ConfigMap, too: its processes may write it, but not that of another."""
    condition = binds(namespace, accounts=CHANGERS)
    if rule is CONFIG_MAPS:
        is_own = "request.namespace == request.userInfo.username.split(':')[2]"
        condition = f"({condition}) && !(request.name == '{STATE}' && {is_own})"
    return make_guard(
        stop_guard_name(rule),
        Guarded("mark-guard", "ttl-after-finished-marks", "UPDATE", _NOT_CHECKED),
        [rule],
        variables={},
        validations=_changeable(rule),
        condition=condition,
    )


def _attestation_guard(rule: KindRule, namespace: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Only objects with an entry of our field managers are looked at, so that other writes cost nothing."""
    ours = binds(namespace, accounts=CHANGERS)
    return make_guard(
        f"{_ATTESTATION_PREFIX}{label_of(rule)}",
        Guarded("attestation-guard", "ttl-after-finished-others", "UPDATE", _NOT_ATTESTED),
        [rule],
        variables={},
        validations=_attested(),
        condition=f"!({ours}) && {_managed('object')}.exists(entry, {_IS_OURS})",
    )


def _attested() -> _Validations:
    """Yield the validation that no entry of our field managers is added, is newer, or owns more than before.

    A mark and a record of use that are malformed, or older than the object, do not count. So a backup tool may restore
    them with their entries.
    """
    owned = ".?fieldsV1[?'f:metadata'][?'f:annotations'].orValue({})"
    same = " && ".join(f"former.?{key} == entry.?{key}" for key in ("manager", "operation", "subresource", "time"))
    former = f"{same} && entry{owned}.all(key, key in former{owned})"
    kept = (
        f"{_managed('object')}.filter(entry, {_IS_OURS}).all(entry, {_managed('oldObject')}.exists(former, {former}))"
    )
    values = (f"object.metadata.?annotations[?'{name}'].orValue('')" for name in (_MARKS[0], _RECORD))
    outdated = " && ".join(
        f"(!{at}.matches('{_INSTANT}') || timestamp({at}) < timestamp(object.metadata.creationTimestamp))"
        for at in values
    )
    message = (
        f"mark: only ttl-after-finished writes as the field managers {', '.join(_MANAGERS)}: use another field "
        "manager, and leave their entries in metadata.managedFields as they are"
    )
    yield f"{kept} || ({outdated})", message


def _managed(obj: str) -> str:
    return f"{obj}.metadata.?managedFields.orValue([])"


def _deletable(rule: KindRule) -> _Validations:
    """Yield each CEL validation of a DELETE with the message of the API server if the validation fails."""
    yield "request.?name.orValue('') != ''", "deletecollection: expected a DELETE of one object"
    preconditions = "request.options.?preconditions"
    yield (
        f"{preconditions}.?uid.hasValue() && {preconditions}.?resourceVersion.hasValue()",
        "preconditions: expected uid and resourceVersion of the object that was read",
    )
    yield from kept(rule)
    marks = " && ".join(f"'{name}' in {_OLD_ANNOTATIONS}" for name in _MARKS)
    yield marks, f"mark: expected the annotations {' and '.join(_MARKS)}"
    opted = f"namespaceObject.metadata.?annotations[?'{ANNOTATION_DOMAIN}/unused'].orValue('true') == 'true'"
    yield opted, f'opted out: the namespace has the annotation {ANNOTATION_DOMAIN}/unused, and it is not "true"'
    yield from _never_collected(rule)


def _never_collected(rule: KindRule) -> _Validations:
    """Yield the validations of `find_never_collected`."""
    name = "oldObject.metadata.name"
    yield f"!(request.namespace in {list_of(sorted(SYSTEM_NAMESPACES))})", "system namespace"
    owners = "oldObject.metadata.?ownerReferences.orValue([]).size() == 0"
    yield owners, f"owned: the {rule.kind} has owner references"
    finalizers = "oldObject.metadata.?finalizers.orValue([]).size() == 0"
    yield finalizers, f"finalized: the {rule.kind} has finalizers"
    yield "oldObject.?immutable.orValue(false) == false", f"immutable: the {rule.kind} is immutable"
    helm = f"{_OLD_LABELS}[?'owner'].orValue('') == 'helm' || {_OLD_LABELS}[?'OWNER'].orValue('') == 'TILLER'"
    yield f"!({helm})", "Helm release"
    yield f"!({name} in {list_of(sorted(NAMES_READ[rule.kind]))})", "read by name: a controller reads the object"
    labels = f"{list_of(sorted(LABELS_READ))}.exists(key, key in {_OLD_LABELS})"
    yield f"!({labels})", "read by label: a controller finds the object by its label"
    values = " || ".join(f"{_OLD_LABELS}[?'{key}'].orValue('') == '{one}'" for key, one in LABEL_VALUES_READ.items())
    yield f"!({values})", "read by label: a controller finds the object by the value of its label"
    copied = f"{list_of(sorted(ANNOTATIONS_READ))}.exists(key, key in {_OLD_ANNOTATIONS})"
    yield f"!({copied})", "read by annotation: a controller copies the object"
    if rule is SECRETS:
        types = f"{list_of(sorted(SECRET_TYPES))}"
        yield f"!(oldObject.?type.orValue('') in {types})", "type: Secrets of this type are never deleted"
        yield f"!('{SERVICE_ACCOUNT_NAME}' in {_OLD_ANNOTATIONS})", "service account token"
        return
    yield f"!({name} in {list_of(sorted(CLUSTER_CONFIG_MAPS))})", "cluster config: read by its name"
    yield f"!('{LEADER}' in {_OLD_ANNOTATIONS})", "leader election"
    yield f"!({name}.startsWith('config-') && ({_is_of_knative()}))", "read by name: a ConfigMap of Knative"


def _is_of_knative() -> str:
    known = ("app.kubernetes.io/name", "app.kubernetes.io/part-of")
    texts = [f"{_OLD_LABELS}[?'{label}'].orValue('').startsWith('knative')" for label in known]
    keys = f"{_OLD_LABELS}.exists(key, key.contains('knative.dev/'))"
    return " || ".join(("request.namespace.startsWith('knative')", *texts, keys))


def _changeable(rule: KindRule) -> _Validations:
    """Yield each CEL validation of a change with the message of the API server if the validation fails."""
    annotations, labels = both("metadata.?annotations"), both("metadata.?labels")
    of_server = ("annotations", "labels", *SET_BY_SERVER)
    conditions = (
        *is_same_beside("oldObject", "object", ("metadata",)),
        *is_same_beside("oldObject.metadata", "object.metadata", of_server),
        *is_same_beside(*annotations, (*_MARKS, _RECORD)),
        *is_same_beside(*labels, (ANNOUNCED_LABEL,)),
    )
    yield (
        " && ".join(conditions),
        f"change: expected no change of the {rule.kind} but its mark, its announcement and its record of use",
    )
