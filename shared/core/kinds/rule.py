"""Kind rules: data that defines when an object of a kind has finished, and how it is deleted.

Each kind has one YAML file, in `shared/kinds/` or in the directory that TTL_KINDS_DIR names. To add a kind, add a
file. `Catalogue` finds the rule of a kind. The whole schema:

    apiVersions: [batch/v1]          # every version that the rule fits, all of one group, the preferred version first
    kind: Job
    plural: jobs                     # the resource name in the URL; what the cluster's discovery says takes precedence
    scope: Namespaced                # or Cluster; discovery takes precedence
    shortNames: [job]                # further names that the command line accepts, in lower case
    finished:                        # one of conditions, field with values, and cases
      conditions:                    #   the first condition in list order with one of these types and status "True"
        Complete: succeeded          #   outcome: succeeded | failed | unknown
        Failed: failed
      field: status.phase            #   or a field, and its final values
      values: {Succeeded: succeeded, Failed: failed}
      cases:                         #   or tests; the first that holds sets the outcome
        - {when: TEST, outcome: failed}
      unless: TEST                   # with any of them: unfinished while this holds, as for a retry or a pause
    observedGeneration: status.observedGeneration   # unfinished while this is behind metadata.generation
    finishedAt:                      # sources in order; the newest instant of the first source that has one counts
      - finishing-condition          #   lastTransitionTime of the condition that marks the object as finished; if that
                                     #   is before the creation (a clock is behind), the newest write of the status
      - finishing-condition-update   #   lastUpdateTime of that condition
      - all-conditions               #   the newest lastTransitionTime of any condition
      - all-containers               #   the newest finishedAt, if every container of the Pod is known to have ended
      - containers-and-conditions    #   the latest instant of containers, conditions and status writes
      - managed-fields               #   the newest write of the status subresource: never before the finish
      - all-managed-fields           #   the newest write of anything: for kinds without a status subresource
      - status.completionTime        #   a path to an RFC 3339 text
      - {field: status.end, unit: epoch-milliseconds}   # or epoch-seconds, rfc3339
      - {condition: Admitted, status: "False", time: lastTransitionTime}
      - {latest: [SOURCE, SOURCE]}   #   the newest of several sources
      - {cel: timestamp(object.status.end)}
    ttl:                             # only if a field of the kind means "delete this object"
      fields:                        #   the first field that is set and whose test holds sets the TTL
        - {path: spec.ttlSecondsAfterFinished, unit: seconds, when: TEST}   # or milliseconds, or Go's duration
      zero: delete                   #   meaning of 0; or never
      negative: invalid              #   meaning of a negative value; or never, or delete
      honouredBy: kube-controller-manager   # the controller that acts on the field, too
      native: act                    #   ttl-after-finished acts on the field, too; or leave: only that controller does
      inherited:                     #   the TTL of another object, if no annotation or field of the object sets one
        ref: spec.runtimeRef         #     a reference with name, apiGroup and kind; without these two, the first kind
        kinds: [{apiVersions: [example.com/v1], kind: Runtime, plural: runtimes, scope: Cluster}]
        fields: [{path: spec.ttlSecondsAfterFinished}]   # of that object, read as `fields` above
    deadline:                        # how long an object may run; if left out, no deadline is enforced
      startedAt: [status.startTime]  #   sources as in finishedAt: the start, or the last resume if that is later
      suspended: TEST                #   the clock does not run while this holds, and starts again after it
      pending:                       #   how long it may wait for its start; if left out, it has no pendingDeadline
        when: TEST                   #     it has never started: the pending deadline applies, if one is set
        since: [SOURCE]              #     since when it waits, as in finishedAt
        suspended: TEST              #     it waits on purpose: the pending deadline does not run
      native:                        #   while one of these fields is set, only the kind's controller acts
        fields: [{path: spec.activeDeadlineSeconds}]   # as in ttl
        zero: now                    #     meaning of 0; or never
        negative: invalid            #     meaning of a negative value; or never, or now
        honouredBy: the Job controller
        defaulted: false             #     true if the kind's webhook sets the field itself: the earlier deadline counts
      stop:                          #   how an object is stopped
        patch: {spec: {activeDeadlineSeconds: 1}}   # a JSON merge patch
        ends: TEST                   #     if the kind does not finish by it: a stopped object counts as failed if this
                                     #     holds, also while `unless` of `finished` holds; without it, the kind's
                                     #     controller finishes the object
        finishes: true               #     without ends: false if the object stays unfinished after the patch
        endedAt: [SOURCE]            #     when the stop was complete; if left out, when the condition in ends changed
      suspend: {patch: {spec: {suspend: true}}, ends: TEST}   # beside a stop without ends: what `on-deadline: suspend`
                                     #   does instead; the fields are those of stop
      exception: {when: TEST, why: why}   # objects on which a stop has no effect: they are not stopped
      cannotStop: why                #   instead of stop: objects can only be deleted, if a person asks for that
      waiters:                       #   what waits for the end of an object, and whether a stop gives it that end
        - {name: its CronJob, goesOn: true, why: it sees the condition Failed}
    createSuspended: {spec: {suspend: true}}   # the merge patch with which a new object does not run until a person
                                     #   removes these fields: `archive restore --suspended` needs it
    whileOwnerUnfinished: keep       # kept while its controller owner is unfinished, whichever source sets the TTL; or
                                     #   delete (the default): kept then only if a policy or a namespace sets the TTL.
                                     #   onOwned: delete in a policy rule applies to keep only if the kind of the owner
                                     #   has no kind rule
    dependents: held                 # the default: objects that it controls are kept while it is unfinished; free: they
                                     #   may be deleted at any time; kept: they are kept while it exists, because it
                                     #   would create another
    replacesFinished: [pods]         # kinds of which it counts unfinished objects only: those that it controls may be
                                     #   deleted once they have finished, because it has replaced them. Running ones are
                                     #   held. Not for an owner that creates another when a finished one is deleted
    children:                        # what it creates by itself or by its children, with owner references: an archive
                                     #   stores it too. An owner comes before what it owns: TaskRun, then Pod. Leave
                                     #   out what shows nothing about a run, such as Services and ConfigMaps
      - {apiVersions: [v1], kind: Pod, plural: pods}
    propagation: Background          # or Foreground, Orphan: sent with every DELETE
    preconditions: honoured          # for a kind of an aggregated API server that checks the uid and resourceVersion of
                                     #   a DELETE. If left out, objects of an aggregated API server are kept
    optIn: why                       # deleted only if the object itself or a policy rule that names the kind sets a TTL
    cleaners:                        # other controllers that delete objects of the kind, or keep them
      - {name: its history limit, when: TEST, does: deletes all but the newest}
    finalizers: {example.com/data: deletes the data}
    notes: for people
    neverFinishes: why               # instead of finished and finishedAt: objects of the kind are always kept

    TEST is one of                   # a path may have [*] after a list: any of its elements
      {condition: Ready, status: "False", reasons: [Denied]}   # defaults: status "True", any reason
      {field: status.phase, values: [A, B]}                    # without values: the field is set
      {label: name, values: [a]}  {annotation: name}
      {all: [TEST]}  {any: [TEST]}  {none: [TEST]}
      {cel: "object.status.replicas == 0"}
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import (
    FROM_FINISHING_CONDITION,
    NamedKind,
    Path,
    Predicate,
    RuleModel,
    TimeSource,
    Word,
    finish_sources,
)
from shared.core.kinds.ttl_and_deadline import DeadlineRule, MergePatch, NativeTtl
from shared.core.values.objects import quote

KindName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*(\.[a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
"""The `name` of a kind rule: `pods`, `jobs.batch`."""


class Outcome(StrEnum):
    """How an object ended; UNKNOWN if its kind does not report it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FinishedCase(RuleModel):
    """A test, and the outcome of an object for which the test holds."""

    when: Predicate
    outcome: Outcome


class FinishedWhen(RuleModel):
    """How to detect that an object has finished: by conditions, by the values of one field, or by tests."""

    conditions: dict[str, Outcome] = Field(default_factory=dict)
    field: Path | None = None
    values: dict[str, Outcome] = Field(default_factory=dict)
    cases: tuple[FinishedCase, ...] = ()
    unless: Predicate | None = None

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        forms = [bool(self.conditions), bool(self.field), bool(self.cases)]
        if sum(forms) != 1 or bool(self.field) != bool(self.values) or "[*]" in (self.field or ""):
            raise PydanticCustomError(
                "one_form", "expected one of `conditions`, `field` (without [*]) together with `values`, and `cases`"
            )
        return self


class Cleaner(RuleModel):
    """Another controller or tool that deletes, recreates or keeps objects, with what it does."""

    name: Word
    does: Word
    when: Predicate | None = None


class ChildKind(NamedKind):
    """A kind of which the controller of another kind creates objects, with an owner reference."""


class KindRule(NamedKind):
    """How one kind finishes and how its objects are deleted; one YAML file defines one rule."""

    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    short_names: tuple[str, ...] = ()
    finished: FinishedWhen | None = None
    observed_generation: Path | None = None
    finished_at: tuple[TimeSource, ...] = ()
    ttl: NativeTtl | None = None
    deadline: DeadlineRule | None = None
    create_suspended: MergePatch | None = None
    while_owner_unfinished: Literal["keep", "delete"] = "delete"
    dependents: Literal["free", "held", "kept"] = "held"
    replaces_finished: tuple[KindName, ...] = ()
    children: tuple[ChildKind, ...] = ()
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    preconditions: Literal["honoured"] | None = None
    opt_in: Word | None = None
    never_finishes: Word | None = None
    cleaners: tuple[Cleaner, ...] = ()
    finalizers: dict[str, Word] = Field(default_factory=dict)
    notes: Word | None = None

    @field_validator("children")
    @classmethod
    def _named_once(cls, children: tuple[ChildKind, ...]) -> tuple[ChildKind, ...]:
        names = [(child.group, child.kind) for child in children]
        if twice := next((kind for group, kind in names if names.count((group, kind)) > 1), ""):
            raise PydanticCustomError("named_once", "expected {kind} once in children", {"kind": twice})
        return children

    @field_validator("finished_at")
    @classmethod
    def _has_a_condition(cls, sources: tuple[TimeSource, ...], info: ValidationInfo) -> tuple[TimeSource, ...]:
        finished = info.data.get("finished")
        if finished and finished.field and (words := sorted(FROM_FINISHING_CONDITION & {*finish_sources(sources)})):
            message = "{word} needs a condition that finishes: expected `conditions` or `cases` in finished"
            raise PydanticCustomError("no_condition", message, {"word": words[0].value})
        return sources

    @model_validator(mode="after")
    def _finishes_or_never(self) -> Self:
        if self.never_finishes:
            if self.finished or self.finished_at or self.ttl or self.deadline or self.children:
                message = "expected no finished, finishedAt, ttl, deadline and children beside neverFinishes"
                raise PydanticCustomError("never", message)
        elif not self.finished or not self.finished_at:
            raise PydanticCustomError("finishes", "expected both finished and finishedAt, or neverFinishes")
        return self

    @model_validator(mode="after")
    def _holds_what_it_replaces(self) -> Self:
        if self.replaces_finished and self.dependents != "held":
            raise PydanticCustomError("replaces", "expected no dependents beside replacesFinished, or dependents: held")
        return self

    @property
    def may_be_aggregated(self) -> bool:
        """Return whether an aggregated API server may serve the kind and is not known to check preconditions.

        A group without a dot is always served by kube-apiserver itself.
        """
        return "." in self.group and self.preconditions is None

    def keeps_dependents(self, *, is_finished: bool | None) -> bool:
        """Return whether an owner of this kind keeps the objects that it controls; `is_finished` is None if unknown."""
        return self.dependents == "kept" or (self.dependents == "held" and is_finished is not True)

    def has_name(self, word: str) -> bool:
        """Return whether a word is one of the kind's names: `Job`, `jobs`, `job` or `jobs.batch`."""
        names = {self.kind.lower(), self.plural, self.name, f"{self.kind.lower()}.{self.group}", *self.short_names}
        return word.lower() in names


class Catalogue:
    """The enabled kind rules, found by apiVersion and kind or by name."""

    def __init__(self, rules: tuple[KindRule, ...]) -> None:
        self.rules = rules
        self._by_kind = {(version, rule.kind): rule for rule in rules for version in rule.api_versions}
        self._of_kind: dict[tuple[str, str], tuple[KindRule, ...]] = {}
        for rule in rules:
            self._of_kind[rule.group, rule.kind] = (*self.of(rule.group, rule.kind), rule)

    def get(self, api_version: str, kind: str) -> KindRule | None:
        """The rule of a kind, or None if the kind is not enabled."""
        return self._by_kind.get((api_version, kind))

    def of(self, group: str, kind: str) -> tuple[KindRule, ...]:
        """The rules of a kind in all versions; only one of them fits a cluster."""
        return self._of_kind.get((group, kind), ())

    def label_of(self, group: str, kind: str) -> str:
        """A unique label of a kind: `Job`, or `Backup.velero.io` because several groups have Backups.

        A built-in kind, whose group has no dot, always keeps its plain name.
        """
        is_shared = len({rule.group for rule in self.rules if rule.kind == kind}) > 1
        return f"{kind}.{group}" if is_shared and "." in group else kind

    def find_by_name(self, word: str) -> tuple[KindRule, ...]:
        """The rules that a word names: those of one kind, or of several kinds that share the name.

        If a built-in kind shares the name, only the built-in kind is meant, as in kubectl. The group of a built-in kind
        has no dot.

        Raises:
            ValueError: The word names no known kind.
        """
        named = tuple(rule for rule in self.rules if rule.has_name(word))
        if not named:
            raise ValueError(f"unknown kind {quote(word)}: {self._suggest(word)}")
        return tuple(rule for rule in named if "." not in rule.group) or named

    def parse_names(self, words: tuple[str, ...]) -> "Catalogue":
        """The kinds that the words name; without words, all kinds that can finish.

        Raises:
            ValueError: A word names no known kind, several kinds, or a kind that never finishes.
        """
        named = [rule for word in words for rule in self.finishing(word)]
        return Catalogue(tuple(rule for rule in self.rules if not rule.never_finishes and (rule in named or not words)))

    def finishing(self, word: str) -> tuple[KindRule, ...]:
        """The rules of the one kind that a word names and that can finish.

        Raises:
            ValueError: The word names no known kind, several kinds, or a kind that never finishes.
        """
        meant = self.find_by_name(word)
        finishing = tuple(rule for rule in meant if not rule.never_finishes)
        if not finishing:
            raise ValueError(f"{word!r} never finishes: {meant[0].never_finishes}")
        names = list(dict.fromkeys(rule.name for rule in finishing))
        if len(names) > 1:
            raise ValueError(f"{word!r} is ambiguous: expected one of {', '.join(names)}")
        return finishing

    def _suggest(self, word: str) -> str:
        """The closest known names, and the command that lists all kinds; they are too many for one message."""
        from difflib import get_close_matches  # noqa: PLC0415 - only for a typo: a cold start does not load it

        first = reversed(self.rules)  # if several kinds share a name, the first is suggested
        names = {name: rule.name for rule in first for name in (rule.plural, rule.kind.lower(), rule.name)}
        close = dict.fromkeys(names[name] for name in get_close_matches(word.lower(), names))
        listed = "`ttl-after-finished kinds` lists them"
        return f"expected a kind, perhaps {' or '.join(close)}; {listed}" if close else f"expected a kind; {listed}"
