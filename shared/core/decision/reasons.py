"""The reasons of decisions, each with its meaning and what an operator can do."""

from enum import StrEnum


class Reason(StrEnum):
    """Why an object is kept or deleted: the same word in log lines, metrics, JSON output and test ids.

    The text of each member is its meaning, and what an operator can do: docs/reference/reasons.md is made from it.
    """

    EXPIRED = "expired"
    """The TTL of the object is over. The object is deleted, unless a safeguard denies or delays the DELETE.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    OVER_COUNT = "over-count"
    """The group of the object has more finished objects than `maxCount` of a policy rule, and the object is among the
    oldest. It is deleted before its TTL is over, or without a TTL, unless a safeguard denies or delays the DELETE.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`, or set a higher `maxCount`.
    """
    OVER_QUOTA = "over-quota"
    """A ResourceQuota is used above `whenQuotaAbove` of a policy rule, and the object is among the oldest of those that
    the rule may delete. It is deleted before its TTL is over, unless a safeguard denies or delays the DELETE.

    To keep the object, run `kubectl ttl hold KIND/NAME --reason WHY`, or increase the quota.
    """
    AUDIT_ONLY = "audit-only"
    """The object is due, and the policy rule that sets this has `audit: true`. The object is reported and kept.

    To delete, stop or archive such objects, remove `audit` from the policy rule.
    """
    NOT_DUE = "not-due"
    """The TTL of the finished object, or the deadline of the unfinished object, is not over yet.

    To keep the object longer, run `kubectl ttl set KIND/NAME TIME` or `kubectl ttl hold KIND/NAME --reason WHY`.
    """
    SERVER_CLOCK_AHEAD = "server-clock-ahead"
    """The API server's clock is more than 60 s ahead of the clock of this process. The object is due by the first clock
    only. It is kept until it is due by both.

    Compare the clocks with `kubectl ttl doctor`, and set the clock that is wrong.
    """
    TERMINATING = "terminating"
    """The object has a `metadata.deletionTimestamp`. A DELETE of it was accepted before.

    If the object does not go, `kubectl ttl explain KIND/NAME` prints which finalizers it waits for.
    """
    HELD = "held"
    """The object has the annotation `ttlafterfinished.dev/hold`.

    To end the hold, run `kubectl ttl release KIND/NAME`.
    """
    NEVER_FINISHES = "never-finishes"
    """The kind rule has `neverFinishes`. Objects of the kind are never deleted.

    Nothing. `kubectl ttl kinds KIND` prints why the kind never finishes.
    """
    EXEMPT = "exempt"
    """The namespace has the annotation `ttlafterfinished.dev/exempt: "true"`.

    To end the exemption, run `kubectl annotate namespace NAME ttlafterfinished.dev/exempt-`.
    """
    INVALID_POLICY = "invalid-policy"
    """An annotation of the namespace has a malformed value, or a policy rule cannot be evaluated for the object.

    Correct the value. The Event `InvalidPolicy` and `kubectl ttl explain KIND/NAME` name it.
    """
    INVALID_TTL = "invalid-ttl"
    """A TTL annotation of the object, or the TTL field of its kind, has a malformed value.

    Correct the value. To remove the annotations, run `kubectl ttl set KIND/NAME --unset`.
    """
    UNFINISHED = "unfinished"
    """The object has not finished.

    Nothing. `kubectl ttl kinds KIND` prints when objects of the kind count as finished.
    """
    LEFT_TO_CONTROLLER = "left-to-controller"
    """The TTL field of the kind is set. The controller of the kind acts on it, and the kind rule has `native: leave`.

    To set a TTL for ttl-after-finished, run `kubectl ttl set KIND/NAME TIME`.
    """
    NO_TTL = "no-ttl"
    """No annotation, TTL field, policy rule or namespace default sets a TTL for the object.

    Set a TTL on the object with `kubectl ttl set KIND/NAME TIME`, in a policy rule, or as the default of the namespace.
    """
    NEVER = "never"
    """The TTL of the object is `never`.

    To set another TTL, run `kubectl ttl set KIND/NAME TIME`.
    """
    FINISH_TIME_UNKNOWN = "finish-time-unknown"
    """The object finished, and no field shows when.

    Set a later instant (RFC 3339), which needs no finish time: `kubectl ttl set KIND/NAME TIME`. If you read the object
    from a file, write the file with `kubectl get -o yaml --show-managed-fields`.
    """
    NAMESPACE_UNREAD = "namespace-unread"
    """The Namespace was not read. It may be exempt, set a default, or set a maximum.

    Allow `get` and `list` on namespaces to the process, or to the person who runs the command.
    """
    INHERITED_UNREAD = "inherited-unread"
    """The object may inherit its TTL from another object to which it refers, and that object was not read.

    Allow `get` on the kind of that object, or set a TTL on the object itself: `kubectl ttl set KIND/NAME TIME`.
    """
    OWNER_UNFINISHED = "owner-unfinished"
    """The controller owner of the object counts as unfinished. It has not finished, or would create another object, or
    its shape is not the one of its kind rule, or the API server does not serve its kind: the line `owner` of
    `kubectl ttl explain KIND/NAME` says which.

    Wait for the owner. To delete the object before its owner, set `ttlafterfinished.dev/owner: ignore` on the object.
    """
    OWNER_UNKNOWN = "owner-unknown"
    """No kind rule says when the controller owner of the object finishes.

    Write a kind rule for the owner, set `onOwned: delete` in the policy rule that sets the TTL, or set
    `ttlafterfinished.dev/owner: ignore` on the object.
    """
    OWNER_UNREAD = "owner-unread"
    """The controller owner of the object keeps the object until it finishes, and it was not read.

    Allow `get` on the kind of the owner, or set `ttlafterfinished.dev/owner: ignore` on the object.
    """
    DISPATCHED = "dispatched"
    """Another cluster created the object here, and still has to read its result.

    Set the TTL on the original, or allow the deletion by a policy rule with `onDispatched: delete`.
    """
    RECREATED = "recreated"
    """A controller such as Argo CD or Flux applies the object, and would create it again: its work would be done again.
    The TTL, limit or deadline comes from a policy or a namespace.

    Set a TTL in the manifest that the controller applies, have a hook do the work, or allow the deletion by a policy
    rule with `onRecreated: delete`.
    """
    AGGREGATED_API = "aggregated-api"
    """An aggregated API server serves the kind, and may ignore the preconditions of a DELETE.

    If the server checks the preconditions, set `preconditions: honoured` in a kind rule.
    """
    API_UNREAD = "api-unread"
    """Whether an aggregated API server serves the kind was not read. Such a server may ignore the preconditions of a
    DELETE.

    Allow `list` on APIServices, or set `preconditions: honoured` in a kind rule.
    """
    KEPT_LAST = "kept-last"
    """A policy rule with `keepLast` or `keepLastFailed` keeps the object as one of the newest of its group.

    Wait: the object is due once enough newer objects of the group have finished.
    """
    RANK_UNREAD = "rank-unread"
    """A policy rule with `keepLast` or `keepLastFailed` keeps the newest objects of the group of the object, and the
    group was not counted.

    If the object has a timer, nothing: the group is counted when the timer fires. Else allow `list` on the kind.
    """
    CHILD_HELD = "child-held"
    """The deletion of the object would take along a child that has the annotation `ttlafterfinished.dev/hold`: the
    garbage collector deletes what the object owns. Children are read only if the policy has `archives`.

    The line `problem` names the child. If it may be deleted, run `kubectl ttl release KIND/NAME` for it: the next sweep
    deletes the object, and so the child.
    """
    CHILD_NOT_ARCHIVED = "child-not-archived"
    """The deletion of the object would take along a child that must be archived, and is not. The child is archived when
    it finishes.

    Read the line `problem`: it names the child. If the child may be lost, set the annotation
    `ttlafterfinished.dev/archive: "false"` on it: then it is deleted unarchived, with its owner. To delete the object
    and keep its children, set `propagation: Orphan` in the policy rule that sets its TTL.
    """
    CHILDREN_UNREAD = "children-unread"
    """The deletion of the object would take along its children, and not all of them were read, or a document of a child
    in the archive was not. Children are read only if the policy has `archives`.

    Read the line `problem`. If the check took too long, the next attempt goes on. To delete the object and keep its
    children, set `propagation: Orphan` in the policy rule that sets its TTL.
    """
    NOT_ARCHIVED = "not-archived"
    """An archive has to acknowledge exactly this version of the object before it is deleted, and has not yet.

    Wait. If it lasts, the Event `NotArchived` and `kubectl ttl explain KIND/NAME` name the problem, as far as reading
    the archive shows it; the log of `archive` names the others. To delete the object without an archive, set
    `ttlafterfinished.dev/archive: "false"` on it.
    """
    ARCHIVE_UNREAD = "archive-unread"
    """An archive has to acknowledge exactly this version of the object before it is deleted, and the archive was not
    read.

    If the object has a timer, nothing: the archive is read when the timer fires. Else the Event `NotArchived` and
    `kubectl ttl explain KIND/NAME` name the problem, and `kubectl ttl doctor` checks each archive.
    """
    INVALID_ARCHIVE = "invalid-archive"
    """The annotation `ttlafterfinished.dev/archive` of the object or its namespace has another value than `true`,
    `false` and the name of an archive of the policy.

    Correct the value. The Event `InvalidArchive` and `kubectl ttl explain KIND/NAME` name it.
    """
    ARCHIVED = "archived"
    """The archive has acknowledged this version of the object.

    Nothing.
    """
    NO_ARCHIVE = "no-archive"
    """No policy rule and no annotation has the object archived.

    To archive the object, set `archive` in a policy rule that matches it.
    """
    UNKNOWN_SHAPE = "unknown-shape"
    """The object does not have the shape that the rule of its kind expects.

    Compare the object with `kubectl ttl kinds KIND`. If your version of the kind differs, write a kind rule.
    """
    DEADLINE_EXCEEDED = "deadline-exceeded"
    """The object runs for longer than its active deadline, or waits for its start for longer than its pending deadline.
    It is stopped, unless a safeguard denies or delays that.

    To give the object more time, set `ttlafterfinished.dev/active-deadline` on it, or before its start
    `ttlafterfinished.dev/pending-deadline`.
    """
    NO_DEADLINE = "no-deadline"
    """No annotation, policy rule or namespace default sets a deadline for the object in its present state.

    To set one, annotate the object with `ttlafterfinished.dev/active-deadline`, or set `activeDeadline` in a policy.
    For the time before its start, use `pending-deadline` and `pendingDeadline`.
    """
    FINISHED = "finished"
    """The object has finished, so its deadlines no longer apply.

    Nothing.
    """
    SUSPENDED = "suspended"
    """The object is suspended, or a queue has it wait, such as by a scheduling gate. The clock of its deadline does not
    run, and starts again when the object is resumed.

    Nothing.
    """
    NOT_STARTED = "not-started"
    """The object has not started, or waits to start again, such as a Pod that no node accepts. The clock of its active
    deadline starts when the object does.

    Find out what it waits for: `kubectl describe` shows why a Pod is not scheduled. To end Pods that never start, set
    `pendingDeadline` in a policy.
    """
    ALREADY_STOPPED = "already-stopped"
    """The object was stopped at its active deadline, or another client has stopped it.

    Nothing. If the object does not finish, look at the controller of its kind.
    """
    STOP_UNDONE = "stop-undone"
    """The object was stopped at its active deadline and runs again. Either a controller undid the stop, or the
    object was resumed after each of three stops. It is not stopped again.

    Correct the controller or client that resumes the object. To let the object be stopped again, remove the annotation
    `ttlafterfinished.dev/deadline-exceeded`.
    """
    CANNOT_STOP = "cannot-stop"
    """The object has a deadline, and its kind rule has `cannotStop`, an `exception` for it, no `suspend` for
    `on-deadline: suspend`, or no `deadline` at all. Or it is a Pod that no node has accepted, which a patch does not
    end. Or it would be deleted at its deadline, and has to be archived, which is done when it finishes.

    `kubectl ttl kinds KIND` prints why. If the rule has `cannotStop`, or the Pod has no node, the annotation
    `ttlafterfinished.dev/on-deadline: delete` has the object deleted instead.
    """
    ENFORCED_BY_CONTROLLER = "enforced-by-controller"
    """The deadline field of the kind is set. The controller of the kind enforces it, and ttl-after-finished does not.

    To set a deadline for ttl-after-finished, remove the field.
    """
    INVALID_DEADLINE = "invalid-deadline"
    """An annotation about a deadline has a malformed value, or the kind of the object has no pending deadline.

    Correct the value. The Event `InvalidDeadline` and `kubectl ttl explain KIND/NAME` name it.
    """
    START_TIME_UNKNOWN = "start-time-unknown"
    """The object has a deadline, and no field shows when its clock started: since when the object runs, or waits for
    its start.

    Nothing, if the object has not started yet, or is a Pod that had scheduling gates. Else compare the object with
    `kubectl ttl kinds KIND`.
    """
