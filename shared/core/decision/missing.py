"""The facts beside an object that a decision may lack, and the reasons that say so."""

from collections.abc import Mapping
from enum import StrEnum

from shared.core.decision.reasons import Reason


class Fact(StrEnum):
    """A fact beside an object. A caller that can read it decides again with it."""

    NAMESPACE = "namespace"
    INHERITED = "inherited"
    """The TTL of the object to which this one refers."""
    OWNER = "owner"
    """Whether the controller owner has finished."""
    API = "api"
    """Whether an aggregated API server serves the kind."""
    RANK = "rank"
    """How many objects of the keepLast group finished later."""
    PLACE = "place"
    """The place in the maxCount group."""
    QUOTAS = "quotas"
    """The quotas that limit the number of objects of the kind."""
    ARCHIVE = "archive"
    """Whether the archive has acknowledged the object."""
    CHILDREN = "children"
    """What the children of the object wait for."""


MISSING: Mapping[Reason, Fact] = {
    Reason.NAMESPACE_UNREAD: Fact.NAMESPACE,
    Reason.INHERITED_UNREAD: Fact.INHERITED,
    Reason.OWNER_UNREAD: Fact.OWNER,
    Reason.API_UNREAD: Fact.API,
    Reason.RANK_UNREAD: Fact.RANK,
    Reason.ARCHIVE_UNREAD: Fact.ARCHIVE,
    Reason.CHILDREN_UNREAD: Fact.CHILDREN,
}
"""The fact without which a decision keeps the object for now, by its reason. No other reason depends on a fact that
was not read."""
