"""Decide about the objects of a file in chunks, for `explain -f`: only what the rest may need stays in memory.

A decision about one object may depend on others: its owner, its Namespace, the object from which it inherits its TTL,
and, if a policy counts objects, all objects of its group. Namespaces are found before the first chunk. Of each chunk,
the owners' states are kept. If an object of a chunk depends on anything else that may follow, the file is decided at
once from this chunk on, with its objects in memory.
"""

import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, islice
from typing import IO, Any

from shared.cli.input.documents import has_pattern, read_documents
from shared.cli.objects.offline import KnownOwner, find_namespaces, find_offline
from shared.cli.objects.preview import ObjectPreview
from shared.core.kinds.catalogue import Catalogue
from shared.core.kinds.rule import KindRule
from shared.core.namespaces import Namespace
from shared.core.objects import get_controller, get_text
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.inherited import find_ttl_source
from shared.errors import TtlError

CHUNK = 500
"""Objects of one chunk."""


@dataclass
class OfflineStream:
    """Decides about the objects of a file, in their order.

    Attributes:
        kinds: All kind rules.
        now: The time of the decisions.
        policy: The policy that applies.
        namespaces: The Namespaces of the whole file, by name.
        is_any: Whether there was a document.
    """

    kinds: Catalogue
    now: datetime
    policy: Policy = NO_POLICY
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    is_any: bool = False
    _owners: dict[str, KnownOwner] = field(default_factory=dict)

    async def find(self, documents: Iterable[dict[str, Any]]) -> AsyncIterator[Sequence[ObjectPreview]]:
        """Yield the decisions about each chunk, in the order of the documents."""
        following = iter(documents)
        counts = any(rule.counts or rule.limits for rule in self.policy.rules)
        while chunk := list(islice(following, None if counts else CHUNK)):
            if not counts and not self._is_complete(chunk):
                chunk = list(chain(chunk, following))
            self.is_any = True
            found = await find_offline(
                chunk,
                kinds=self.kinds,
                now=self.now,
                policy=self.policy,
                namespaces=self.namespaces,
                owners=self._owners,
            )
            yield found
            self._remember(found)

    def _is_complete(self, chunk: Sequence[dict[str, Any]]) -> bool:
        """Return whether the decisions about a chunk depend on nothing that follows it."""
        uids = {get_text(obj, "metadata.uid") for obj in chunk}
        for obj in chunk:
            owner, rule = get_controller(obj), self._rule_of(obj)
            if owner is not None and owner.uid not in uids and owner.uid not in self._owners:
                return False
            if rule is not None and find_ttl_source(obj, rule.ttl) is not None:
                return False
        return True

    def _remember(self, found: Sequence[ObjectPreview]) -> None:
        """Keep the states of objects that later objects may name as their owner; the first of one uid counts."""
        for one in found:
            if one.related is not None and one.ref.uid:
                known = KnownOwner(one.related.rule, one.decision.facts.finish)
                self._owners.setdefault(one.ref.uid, known)

    def _rule_of(self, obj: dict[str, Any]) -> KindRule | None:
        return self.kinds.get(get_text(obj, "apiVersion"), get_text(obj, "kind"))


_NAMESPACE_KIND = re.compile(r"""kind["']?\s{0,80}:\s{0,80}["']?Namespace(?:List)?\b""")
"""The kind of a Namespace in YAML and JSON; other texts that have it are parsed for nothing.

It begins with letters, which `re` finds fast: with a `\\b` before them, the search takes sixty times as long.
"""


def read_namespaces(stream: IO[str], name: str) -> dict[str, Namespace]:
    """Return the Namespaces of a file, by name, and go back to its begin: only documents that may have one are parsed.

    Args:
        stream: A stream that can be read twice.
        name: The name of the file, for messages.
    """
    try:
        if not has_pattern(stream, _NAMESPACE_KIND):
            return {}
        stream.seek(0)
        return find_namespaces(read_documents(stream, name, only=_NAMESPACE_KIND))
    except (UnicodeDecodeError, TtlError):
        return {}  # the reader of all documents names the place
    finally:
        stream.seek(0)
