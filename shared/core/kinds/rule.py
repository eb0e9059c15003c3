"""Kind rules: how a kind says that it finished, as data.

One YAML file a kind in `shared/kinds/`, and in the directory of whoever runs this; adding a kind is adding a file.
The whole schema:

    apiVersions: [batch/v1]          # of one group: every version that the rule is right for, the preferred first
    kind: Job
    plural: jobs                     # the resource name in the URL; what the cluster itself says counts before it
    scope: Namespaced                # or Cluster; the same
    shortNames: [job]                # what the command line accepts beside plural and kind, in lower case
    finished:                        # one of
      conditions:                    #   the first condition in list order of one of these types with status "True"
        Complete: succeeded          #   outcome: succeeded | failed | unknown
        Failed: failed
      field: status.phase            #   or a field, and the values that are final
      values: {Succeeded: succeeded, Failed: failed}
      cases:                         #   or tests, of which the first that holds counts
        - {when: TEST, outcome: failed}
      unless: TEST                   # beside any of them: unfinished all the same; it may be retried, or is paused
    observedGeneration: status.observedGeneration   # unfinished while this is behind metadata.generation
    finishedAt:                      # tried in order; the first source that knows an instant speaks, its newest
      - finishing-condition          #   lastTransitionTime of the condition that finished it; if that lies before
                                     #   the creation (a clock behind), the newest write of the status
      - finishing-condition-update   #   its lastUpdateTime
      - all-conditions               #   the newest lastTransitionTime of any condition
      - all-containers               #   newest finishedAt, if every container of the Pod is known to have ended
      - containers-and-conditions    #   the latest of what containers, conditions and status writes tell
      - managed-fields               #   newest write of the status subresource: later than the finish, never earlier
      - all-managed-fields           #   newest write of anything: for kinds without a status subresource
      - status.completionTime        #   a path to an RFC 3339 text
      - {field: status.end, unit: epoch-milliseconds}   # or epoch-seconds, rfc3339
      - {condition: Admitted, status: "False", time: lastTransitionTime}
      - {latest: [SOURCE, SOURCE]}   #   the newest of several
      - {cel: timestamp(object.status.end)}
    ttl:                             # left out unless the kind's own field means "delete this object"
      fields:                        #   the first that is there, and whose test holds, speaks
        - {path: spec.ttlSecondsAfterFinished, unit: seconds, when: TEST}   # or milliseconds, or Go's duration
      zero: delete                   #   what 0 means; or never
      negative: invalid              #   what less means; or never, or delete
      honouredBy: kube-controller-manager   # who acts on the field beside us
      native: act                    #   whether we act on it too; or leave
    whileOwnerUnfinished: keep       # or delete (the default): what an unfinished controller owner means
    dependents: free                 # or held (the default): whether what it made may go while it goes on; or kept:
                                     #   not while it exists, since it would make another
    propagation: Background          # or Foreground, Orphan: sent with every DELETE
    preconditions: honoured          # where an aggregated API server serves the kind: it is known to check the uid and
                                     #   resourceVersion of a DELETE. Left out: objects are kept there
    optIn: why                       # deleted only where the object itself, or a policy that names the kind, says so
    cleaners:                        # who else removes such objects, or holds them
      - {name: its history limit, when: TEST, does: deletes all but the newest}
    finalizers: {example.com/data: deletes the data}
    notes: for people
    neverFinishes: why               # instead of finished and finishedAt: known, and kept

    TEST is one of                   # a path may have [*] after a list: any of its elements
      {condition: Ready, status: "False", reasons: [Denied]}   # status "True" if left out; any reason if left out
      {field: status.phase, values: [A, B]}                    # is there at all, without values
      {label: name, values: [a]}  {annotation: name}
      {all: [TEST]}  {any: [TEST]}  {none: [TEST]}
      {cel: "object.status.replicas == 0"}
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, StringConstraints, Tag, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from shared.core.kinds.predicates import Path, Predicate, RuleModel, read_cel
from shared.core.objects import quote

ApiVersion = Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")]
Word = Annotated[str, StringConstraints(min_length=1, max_length=1_000)]


class Outcome(StrEnum):
    """How an object ended, where its kind tells."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FinishSource(StrEnum):
    """Where a finish time can be read, beside a plain field. See the module's schema."""

    FINISHING_CONDITION = "finishing-condition"
    FINISHING_CONDITION_UPDATE = "finishing-condition-update"
    ALL_CONDITIONS = "all-conditions"
    ALL_CONTAINERS = "all-containers"
    CONTAINERS_AND_CONDITIONS = "containers-and-conditions"
    MANAGED_FIELDS = "managed-fields"
    ALL_MANAGED_FIELDS = "all-managed-fields"


class FieldTime(RuleModel):
    """An instant in a field, in a unit of its own."""

    field: Path
    unit: Literal["rfc3339", "epoch-seconds", "epoch-milliseconds"] = "rfc3339"


class ConditionTime(RuleModel):
    """An instant in a condition."""

    condition: Word
    status: str = "True"
    time: Literal["lastTransitionTime", "lastUpdateTime"] = "lastTransitionTime"


class CelTime(RuleModel):
    """An instant that an expression gives."""

    cel: str

    @field_validator("cel")
    @classmethod
    def _is_cel(cls, text: str, info: ValidationInfo) -> str:
        return read_cel(text, "timestamp", info)


class LatestTime(RuleModel):
    """The newest instant of several sources."""

    latest: tuple["TimeSource", ...] = Field(min_length=1)


def _form_of(source: object) -> str | None:
    """Which form a source of times has: pydantic then tells errors of that form alone."""
    if isinstance(source, str):
        return "path" if "." in source else "word"
    names = source if isinstance(source, dict) else getattr(source, "model_fields_set", ())
    return next((name for name in ("field", "condition", "cel", "latest") if name in names), None)


TimeSource = Annotated[
    Annotated[FinishSource, Tag("word")]
    | Annotated[Path, Tag("path")]
    | Annotated[FieldTime, Tag("field")]
    | Annotated[ConditionTime, Tag("condition")]
    | Annotated[CelTime, Tag("cel")]
    | Annotated[LatestTime, Tag("latest")],
    Discriminator(
        _form_of,
        custom_error_type="time_source",
        custom_error_message="expected a source of times: a word, a path, or one of field, condition, cel, latest",
    ),
]
LatestTime.model_rebuild()


_CONDITIONS = {FinishSource.FINISHING_CONDITION, FinishSource.FINISHING_CONDITION_UPDATE}


def _plain(sources: Iterable[TimeSource]) -> Iterator[FinishSource]:
    for source in sources:
        if isinstance(source, FinishSource):
            yield source
        elif isinstance(source, LatestTime):
            yield from _plain(source.latest)


class FinishedCase(RuleModel):
    """A test, and how an object ended for which it holds."""

    when: Predicate
    outcome: Outcome


class FinishedWhen(RuleModel):
    """What marks an object as finished: conditions, the values of one field, or tests; exactly one of them."""

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


class TtlField(RuleModel):
    """One field of a kind that holds a TTL."""

    path: Path
    unit: Literal["seconds", "milliseconds", "duration"] = "seconds"
    when: Predicate | None = None


class NativeTtl(RuleModel):
    """The kind's own TTL."""

    fields: tuple[TtlField, ...] = Field(min_length=1)
    zero: Literal["delete", "never"] = "delete"
    negative: Literal["invalid", "never", "delete"] = "invalid"
    honoured_by: Word | None = None
    native: Literal["act", "leave"] = "act"


class Cleaner(RuleModel):
    """Somebody else who removes objects of the kind, or keeps them from going."""

    name: Word
    does: Word
    when: Predicate | None = None


class KindRule(RuleModel):
    """How one kind finishes and how it is deleted; parsed from one file of `shared/kinds/`."""

    api_versions: tuple[ApiVersion, ...] = Field(min_length=1)
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    short_names: tuple[str, ...] = ()
    finished: FinishedWhen | None = None
    observed_generation: Path | None = None
    finished_at: tuple[TimeSource, ...] = ()
    ttl: NativeTtl | None = None
    while_owner_unfinished: Literal["keep", "delete"] = "delete"
    dependents: Literal["free", "held", "kept"] = "held"
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"
    preconditions: Literal["honoured"] | None = None
    opt_in: Word | None = None
    never_finishes: Word | None = None
    cleaners: tuple[Cleaner, ...] = ()
    finalizers: dict[str, Word] = Field(default_factory=dict)
    notes: Word | None = None

    @field_validator("api_versions")
    @classmethod
    def _of_one_group(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        if len({version.rpartition("/")[0] for version in versions}) > 1:
            raise PydanticCustomError("one_group", "expected versions of one group")
        return versions

    @field_validator("finished_at")
    @classmethod
    def _has_a_condition(cls, sources: tuple[TimeSource, ...], info: ValidationInfo) -> tuple[TimeSource, ...]:
        finished = info.data.get("finished")
        if finished and finished.field and (told := sorted(_CONDITIONS & {*_plain(sources)})):
            message = "{word} needs a condition that finishes: expected `conditions` or `cases` in finished"
            raise PydanticCustomError("no_condition", message, {"word": told[0].value})
        return sources

    @model_validator(mode="after")
    def _finishes_or_never(self) -> Self:
        if self.never_finishes:
            if self.finished or self.finished_at or self.ttl:
                raise PydanticCustomError("never", "expected no finished, finishedAt and ttl beside neverFinishes")
        elif not self.finished or not self.finished_at:
            raise PydanticCustomError("finishes", "expected both finished and finishedAt, or neverFinishes")
        return self

    @property
    def api_version(self) -> str:
        """The preferred version."""
        return self.api_versions[0]

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def name(self) -> str:
        """What names the kind among all: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def collection_path(self) -> str:
        """The URL path of the kind across all namespaces: `/apis/batch/v1/jobs`, `/api/v1/pods`."""
        root = "apis" if self.group else "api"
        return f"/{root}/{self.api_version}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        """The URL path of the kind in one namespace, or across all where the namespace is empty."""
        if not namespace:
            return self.collection_path
        root, _, plural = self.collection_path.rpartition("/")
        return f"{root}/namespaces/{namespace}/{plural}"

    @property
    def may_be_aggregated(self) -> bool:
        """Whether it counts which server serves the kind: a group without a dot is kube-apiserver's own."""
        return "." in self.group and self.preconditions is None

    def keeps_dependents(self, *, is_finished: bool | None) -> bool:
        """Whether what an object of the kind made stays while the object exists; `is_finished` is None if unknown."""
        return self.dependents == "kept" or (self.dependents == "held" and is_finished is not True)

    def is_named(self, word: str) -> bool:
        """Whether people mean this kind by the word: `Job`, `jobs`, `job` or `jobs.batch`."""
        names = {self.kind.lower(), self.plural, self.name, f"{self.kind.lower()}.{self.group}", *self.short_names}
        return word.lower() in names


class Catalogue:
    """The kind rules that are enabled, found by apiVersion and kind."""

    def __init__(self, rules: tuple[KindRule, ...]) -> None:
        self.rules = rules
        self._by_kind = {(version, rule.kind): rule for rule in rules for version in rule.api_versions}
        self._of_kind: dict[tuple[str, str], tuple[KindRule, ...]] = {}
        for rule in rules:
            self._of_kind[rule.group, rule.kind] = (*self.of(rule.group, rule.kind), rule)

    def get(self, api_version: str, kind: str) -> KindRule | None:
        """The rule of a kind, or None where the kind is not enabled."""
        return self._by_kind.get((api_version, kind))

    def of(self, group: str, kind: str) -> tuple[KindRule, ...]:
        """The rules of a kind, whatever their versions; a cluster goes by one of them."""
        return self._of_kind.get((group, kind), ())

    def label_of(self, group: str, kind: str) -> str:
        """What tells a kind from others of its name: `Job`, and `Backup.velero.io` where several groups have Backups.

        A built-in one, that of a group without a dot, goes by its plain name in any case.
        """
        is_shared = len({rule.group for rule in self.rules if rule.kind == kind}) > 1
        return f"{kind}.{group}" if is_shared and "." in group else kind

    def meant_by(self, word: str) -> tuple[KindRule, ...]:
        """The rules that a word names: those of one kind, or of several that share the name.

        Of several the built-in one is meant, as kubectl has it: that of a group without a dot.

        Raises:
            ValueError: It names none.
        """
        named = tuple(rule for rule in self.rules if rule.is_named(word))
        if not named:
            raise ValueError(f"unknown kind {quote(word)}: {self._suggest(word)}")
        return tuple(rule for rule in named if "." not in rule.group) or named

    def parse_names(self, words: tuple[str, ...]) -> "Catalogue":
        """The kinds that the words name; all that can finish where there are none.

        Raises:
            ValueError: A word names no kind, several, or one that never finishes.
        """
        named = [rule for word in words for rule in self.finishing(word)]
        return Catalogue(tuple(rule for rule in self.rules if not rule.never_finishes and (rule in named or not words)))

    def finishing(self, word: str) -> tuple[KindRule, ...]:
        """The rules of the one kind that a word names, which can finish.

        Raises:
            ValueError: It names none, several, or one that never finishes.
        """
        meant = self.meant_by(word)
        finishing = tuple(rule for rule in meant if not rule.never_finishes)
        if not finishing:
            raise ValueError(f"{word!r} never finishes: {meant[0].never_finishes}")
        names = list(dict.fromkeys(rule.name for rule in finishing))
        if len(names) > 1:
            raise ValueError(f"{word!r} is ambiguous: expected one of {', '.join(names)}")
        return finishing

    def _suggest(self, word: str) -> str:
        """What may have been meant, or where all are told: there are too many to name."""
        from difflib import get_close_matches  # noqa: PLC0415 - for a slip only; a cold start need not wait for it

        first = reversed(self.rules)  # of several of one name the first is suggested
        names = {name: rule.name for rule in first for name in (rule.plural, rule.kind.lower(), rule.name)}
        close = dict.fromkeys(names[name] for name in get_close_matches(word.lower(), names))
        listed = "`ttl-after-finished kinds` lists them"
        return f"expected a kind, perhaps {' or '.join(close)}; {listed}" if close else f"expected a kind; {listed}"
