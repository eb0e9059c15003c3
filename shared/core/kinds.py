"""Kind rules: how a kind says that it finished, as data.

One YAML file a kind in `shared/kinds/`; adding a kind is adding a file. The whole schema:

    apiVersion: batch/v1
    kind: Job
    plural: jobs                     # the resource name in the URL; never guessed from the kind
    scope: Namespaced                # or Cluster
    shortNames: [job]                # what the command line accepts beside plural and kind, in lower case
    finished:                        # one of
      conditions:                    #   the first condition in list order of one of these types with status "True"
        Complete: succeeded          #   outcome: succeeded | failed | unknown
        Failed: failed
      field: status.phase            #   or a field, and the values that are final
      values: {Succeeded: succeeded, Failed: failed}
    finishedAt:                      # tried in order; the first source that knows an instant speaks
      - finishing-condition          #   lastTransitionTime of the condition that finished it; if that lies before
                                     #   the creation (a clock behind), the newest write of the status
      - all-containers               #   newest finishedAt, if every container of the Pod is known to have ended
      - containers-and-conditions    #   the latest of what containers, conditions and status writes tell
      - managed-fields               #   newest write of the status subresource: later than the finish, never earlier
      - status.completionTime        #   a dotted path: an RFC 3339 field
    ttlSecondsField: spec.ttlSecondsAfterFinished   # only where it means "delete this object"; left out otherwise
    whileOwnerUnfinished: keep       # or delete (the default): what an unfinished controller owner means
    propagation: Background          # or Foreground, Orphan: sent with every DELETE
"""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

DottedPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)+$")]


class Outcome(StrEnum):
    """How an object ended, where its kind tells."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class FinishSource(StrEnum):
    """Where a finish time can be read, beside a plain field. See the module's schema."""

    FINISHING_CONDITION = "finishing-condition"
    ALL_CONTAINERS = "all-containers"
    CONTAINERS_AND_CONDITIONS = "containers-and-conditions"
    MANAGED_FIELDS = "managed-fields"


class _Rule(BaseModel):
    """Frozen, camelCase in YAML, and strict about unknown fields: a typo must not silently change a rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class FinishedWhen(_Rule):
    """What marks an object as finished: conditions, or the values of one field; exactly one of the two."""

    conditions: dict[str, Outcome] = Field(default_factory=dict)
    field: DottedPath | None = None
    values: dict[str, Outcome] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_the_two(self) -> Self:
        if bool(self.conditions) == bool(self.field) or bool(self.field) != bool(self.values):
            raise ValueError("expected either `conditions`, or `field` together with `values`")
        return self


class KindRule(_Rule):
    """How one kind finishes and how it is deleted; parsed from one file of `shared/kinds/`."""

    api_version: str = Field(pattern=r"^([a-z0-9.-]+/)?v[a-z0-9]+$")
    kind: str = Field(pattern=r"^[A-Z][A-Za-z0-9]*$")
    plural: str = Field(pattern=r"^[a-z][a-z0-9]*$")
    scope: Literal["Namespaced", "Cluster"] = "Namespaced"
    short_names: tuple[str, ...] = ()
    finished: FinishedWhen
    finished_at: tuple[FinishSource | DottedPath, ...] = Field(min_length=1)
    ttl_seconds_field: DottedPath | None = None
    while_owner_unfinished: Literal["keep", "delete"] = "delete"
    propagation: Literal["Background", "Foreground", "Orphan"] = "Background"

    @property
    def collection_path(self) -> str:
        """The URL path of the kind across all namespaces: `/apis/batch/v1/jobs`, `/api/v1/pods`."""
        root = "apis" if "/" in self.api_version else "api"
        return f"/{root}/{self.api_version}/{self.plural}"

    def path_in(self, namespace: str) -> str:
        """The URL path of the kind in one namespace, or across all where the namespace is empty."""
        if not namespace:
            return self.collection_path
        root, _, plural = self.collection_path.rpartition("/")
        return f"{root}/namespaces/{namespace}/{plural}"

    def is_named(self, word: str) -> bool:
        """Whether people mean this kind by the word: `Job`, `jobs`, `job` or `jobs.batch`."""
        group = self.api_version.rpartition("/")[0]
        names = {self.kind.lower(), self.plural, f"{self.plural}.{group}", *self.short_names}
        return word.lower() in names


class Catalogue:
    """The kind rules that are enabled, found by apiVersion and kind."""

    def __init__(self, rules: tuple[KindRule, ...]) -> None:
        self.rules = rules
        self._by_kind = {(rule.api_version, rule.kind): rule for rule in rules}

    def get(self, api_version: str, kind: str) -> KindRule | None:
        """The rule of a kind, or None where the kind is not enabled."""
        return self._by_kind.get((api_version, kind))

    def parse_names(self, words: tuple[str, ...]) -> "Catalogue":
        """The part of the catalogue that the words name; all of it where there are none.

        Raises:
            ValueError: A word names no kind.
        """
        for word in words:
            if not any(rule.is_named(word) for rule in self.rules):
                known = ", ".join(sorted(rule.plural for rule in self.rules))
                raise ValueError(f"unknown kind {word!r}: expected one of {known}")
        if not words:
            return self
        return Catalogue(tuple(rule for rule in self.rules if any(rule.is_named(word) for word in words)))
