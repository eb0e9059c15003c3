"""The reasons of decisions about unused Secrets and ConfigMaps, each with its meaning and what an operator can do."""

from enum import StrEnum


class UnusedReason(StrEnum):
    """Why a Secret or a ConfigMap is kept, marked or deleted.

    The text of each member is its meaning, and what an operator can do: docs/reference/references.md is made from it.
    """

    UNUSED = "unused"
    """Nothing refers to the object, for longer than the TTL, and two passes over all carriers have confirmed it. The
    object is deleted, unless a safeguard denies or delays the DELETE.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    NEWLY_UNUSED = "newly-unused"
    """A complete pass found no reference to the object. It is marked with the current instant.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    CHANGED = "changed"
    """The object was changed after it was marked. It is marked again, so that its TTL starts again.

    Nothing.
    """
    NOT_DUE = "not-due"
    """The object is marked as unused, and its TTL is not over yet.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    SERVER_CLOCK_AHEAD = "server-clock-ahead"
    """The API server's clock is ahead of the clock of this process, and the TTL is over by the first clock only.

    Compare the clocks with `kubectl ttl doctor`, and set the clock that is wrong.
    """
    UNCONFIRMED = "unconfirmed"
    """The TTL is over. Two complete and consistent passes that started after it have not confirmed yet that nothing
    refers to the object.

    Nothing: the next passes confirm it, or find the reference.
    """
    NOT_ARCHIVED = "not-archived"
    """The object is due, and its archive has not acknowledged exactly this version of it, or the grace is not over.

    Read the message: it names the archive and the problem. `kubectl ttl doctor` checks each archive of the policy.
    """
    AUDIT_ONLY = "audit-only"
    """The object would be deleted, and the policy rule has `audit: true`.

    To delete such objects, remove `audit` from the policy rule.
    """
    USED = "used"
    """An object refers to it.

    Nothing. The references of the decision name the object and its field.
    """
    NEVER_USED = "never-used"
    """Nothing refers to the object, and no use of it is recorded. A program may find it by its name, by a label, or by
    a text in data, so it is kept.

    If you know that nothing reads it, run `kubectl delete KIND/NAME`. To have such objects deleted by a rule, set
    `neverUsed: true` in its `unused`.
    """
    USE_UNKNOWN = "use-unknown"
    """It is unknown whether an object refers to it: no pass was complete, or a field that may refer to it cannot be
    read.

    Allow `list` on the kind that the message names, or correct the field.
    """
    NOT_ENABLED = "not-enabled"
    """No policy rule with `unused` matches the object.

    To have unused objects deleted, set `unused` in a policy rule that matches them.
    """
    NOT_OPTED_IN = "not-opted-in"
    """The namespace has `ttlafterfinished.dev/unused: "false"`, or it has no such annotation and the policy rule does
    not name it.

    To opt in, run `kubectl annotate namespace NAME ttlafterfinished.dev/unused=true`, or name it in the policy rule.
    """
    NAMESPACE_UNREAD = "namespace-unread"
    """The Namespace was not read. It may be exempt, or not opted in.

    Allow `get` and `list` on namespaces to the process.
    """
    INVALID_POLICY = "invalid-policy"
    """An annotation of the namespace has a malformed value, or a policy rule cannot be evaluated for the object.

    Correct the value.
    """
    EXEMPT = "exempt"
    """The namespace has the annotation `ttlafterfinished.dev/exempt: "true"`.

    To end the exemption, run `kubectl annotate namespace NAME ttlafterfinished.dev/exempt-`.
    """
    HELD = "held"
    """The object has the annotation `ttlafterfinished.dev/hold`.

    To end the hold, run `kubectl ttl release KIND/NAME`.
    """
    TERMINATING = "terminating"
    """The object has a `metadata.deletionTimestamp`.

    Nothing.
    """
    UNKNOWN_SHAPE = "unknown-shape"
    """The metadata of the object cannot be read: its uid, its version, or its `managedFields`.

    Compare the object with the Kubernetes API.
    """
    UNATTESTED = "unattested"
    """The object has no `metadata.managedFields`: the API server does not note who writes to it, so it can attest
    neither its use nor a mark. `kubectl create configmap NAME` without data makes such an object.

    To have its writes noted from now on, add a label to it by `kubectl apply --server-side`.
    """
    OWNED = "owned"
    """The object has owner references. The garbage collector deletes it after its owners.

    Nothing.
    """
    FINALIZED = "finalized"
    """The object has a finalizer: a controller looks after it.

    To have it deleted, remove the finalizer, if its controller is gone.
    """
    IMMUTABLE = "immutable"
    """A client has set `immutable`. The object cannot be restored under its name with other data.

    To delete it, run `kubectl delete KIND NAME`.
    """
    SYSTEM_NAMESPACE = "system-namespace"
    """The object is in kube-system, kube-public or kube-node-lease.

    Nothing.
    """
    SECRET_TYPE_UNKNOWN = "secret-type-unknown"  # noqa: S105 - a reason
    """The type of the Secret was not read. Some types are never deleted.

    Nothing: the next pass reads it.
    """
    HELM_RELEASE = "helm-release"
    """The object stores a release of Helm.

    To limit the number of stored releases, use the option `--history-max` of Helm.
    """
    SERVICE_ACCOUNT_TOKEN = "service-account-token"  # noqa: S105 - a reason
    """The Secret has the token of a ServiceAccount. Clients outside of the cluster may use it.

    Kubernetes deletes unused automatic tokens itself.
    """
    BOOTSTRAP_TOKEN = "bootstrap-token"  # noqa: S105 - a reason
    """The Secret has a bootstrap token of the cluster.

    Kubernetes deletes it when it expires.
    """
    CLUSTER_CONFIG = "cluster-config"
    """Kubernetes, OpenShift, Istio or kubeadm creates a ConfigMap of this name, and reads it by its name.

    Nothing.
    """
    LEADER_ELECTION = "leader-election"
    """The ConfigMap is the lock of a leader election.

    Nothing.
    """
    READ_BY_NAME = "read-by-name"
    """A controller reads the object by its name: a `config-*` ConfigMap of Knative, a Secret of Argo CD, or the shared
    state of ttl-after-finished.

    Nothing.
    """
    READ_BY_LABEL = "read-by-label"
    """A controller finds the object by its label, by an annotation or by its type, such as a dashboard of Grafana.

    Nothing.
    """


NEVER_DELETED = frozenset(
    {
        UnusedReason.OWNED,
        UnusedReason.SYSTEM_NAMESPACE,
        UnusedReason.HELM_RELEASE,
        UnusedReason.SERVICE_ACCOUNT_TOKEN,
        UnusedReason.BOOTSTRAP_TOKEN,
        UnusedReason.CLUSTER_CONFIG,
        UnusedReason.LEADER_ELECTION,
        UnusedReason.READ_BY_NAME,
        UnusedReason.READ_BY_LABEL,
    }
)
"""The reasons of objects that other programs read or delete, so that no reference to them is expected."""
