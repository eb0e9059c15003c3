"""`explain`: the decision about one object, its reason, and what to do.

`explain -f` decides about the objects of a file without a cluster, and in chunks: only what the rest may need stays in
memory. A decision about one object may depend on others: its owner, its Namespace, the object from which it inherits
its TTL, and, if a policy counts objects, all objects of its group. Namespaces are found before the first chunk. Of each
chunk, the owners' states are kept. If an object of a chunk depends on anything else that may follow, the file is
decided at once from this chunk on, with its objects in memory.
"""

import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import IO, Any

import click

from shared.adapters.clock import SystemClock
from shared.cli.explanation.explanation_text import ExplanationPrinter
from shared.cli.input.command import command
from shared.cli.input.documents import has_pattern, open_file, read_documents, seekable
from shared.cli.input.options import (
    Options,
    context_namespace_option,
    known_kinds,
    object_options,
    output_option,
    read_policy,
    references_dir_option,
)
from shared.cli.objects.archive_report import with_own_deletion
from shared.cli.objects.preview import ObjectPreview, no_cyclic_collection
from shared.cli.objects.related import NO_RULE, Owner, describe_finish, find_related
from shared.cli.output.printing import inform, show_count, show_progress
from shared.core.decision.decide import Facts, Ignore, Reason
from shared.core.decision.finish import Finish, finish_of, lacks_managed_fields
from shared.core.decision.namespaces import Namespace, namespace_of, plain_namespace
from shared.core.kinds.rule import Catalogue, KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.ttl import find_ttl_source
from shared.core.values.objects import ObjectRef, get_controller, get_text, parse_instant, ref_of
from shared.errors import TtlError
from shared.evaluation.batch import BatchEvaluator
from shared.evaluation.namespaces_and_owners import is_unfinished_by_kind
from shared.evaluation.ttl_sources import find_among
from shared.ports import Snapshot


def _instant(_context: click.Context, _parameter: click.Parameter, value: str | None) -> datetime | None:
    try:
        return None if value is None else parse_instant(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@command()
@click.argument("target", nargs=-1, metavar="KIND/NAME")
@click.option(
    "-f", "--filename", metavar="FILE", help="Explain every document of a YAML file, without a cluster; - for stdin."
)
@click.option(
    "--now", callback=_instant, metavar="TIME", help="With -f: the time of the decision (RFC 3339). Default: now."
)
@context_namespace_option
@references_dir_option
@object_options
@output_option
async def explain(
    options: Options, *, target: tuple[str, ...], filename: str | None, now: datetime | None, output: str
) -> None:
    """Show the decision about an object, its reason and what to do; then its finish time, its TTL and its deadline.

    For a Secret or a ConfigMap: show which objects refer to it, or since when it is unused.

    If the object does not exist, the archives of the policy are searched for it.

    The installed policy applies, unless --policy or $TTL_POLICY names another. With -f, only a named policy applies.
    If the policy in force or another fact is unknown, and may change the decision, the exit code is 1.
    """
    if filename is not None:
        if target:
            raise click.UsageError("expected either KIND/NAME or -f FILE, got both")
        await _explain_file(options, filename, now or SystemClock().now(), output)
        return
    if now is not None:
        raise click.UsageError("--now requires -f: for an object of a cluster, the cluster's clock counts")
    from shared.cli.explanation.live_explanation import explain_live  # noqa: PLC0415 - `-f` needs no cluster

    await explain_live(options, target, output)


async def _explain_file(options: Options, filename: str, now: datetime, output: str) -> None:
    """Print the decisions about the objects of a file while it is read."""
    kinds = known_kinds(options.kinds_dir)
    policy = read_policy(options.policy, kinds)
    printer = ExplanationPrinter(output)
    with sys.stdin if filename == "-" else open_file(filename) as opened, no_cyclic_collection():
        stream = seekable(opened)
        decider = OfflineStream(kinds, now, policy, read_namespaces(stream, filename))
        async for found in decider.find(show_count(read_documents(stream, filename))):
            show_progress("")
            printer.print([(one, None) for one in found])
        if not decider.is_any:
            inform(f"note: {filename} has no objects")
    printer.end()


CHUNK = 500
"""Objects of one chunk."""


@dataclass(frozen=True, slots=True)
class _KnownOwner:
    """An object of the file that may be the owner of others.

    Attributes:
        rule: The rule of its kind.
        finish: Its finish.
    """

    rule: KindRule
    finish: Finish


UNFINISHED = Finish(finished=False)
NO_NAMESPACES: Mapping[str, Namespace] = MappingProxyType({})
NO_OWNERS: Mapping[str, _KnownOwner] = MappingProxyType({})


async def find_offline(
    documents: Sequence[dict[str, Any]],
    *,
    kinds: Catalogue,
    now: datetime,
    policy: Policy = NO_POLICY,
    namespaces: Mapping[str, Namespace] = NO_NAMESPACES,
    owners: Mapping[str, _KnownOwner] = NO_OWNERS,
) -> list[ObjectPreview]:
    """Decide about each document of a file, without a cluster.

    Owners, ranks, Namespaces and the objects that set inherited TTLs come from the file. An owner that is not in the
    file counts as unfinished, unless its kind alone decides; a Namespace that is not in it counts as one without
    annotations. An object is kept if it may inherit its TTL from one that is not in the file. Namespaces themselves are
    not in the result.

    Args:
        documents: The documents, or some of them.
        kinds: All kind rules.
        now: The time of the decisions.
        policy: The policy that applies.
        namespaces: The Namespaces of the whole file, by name; those of the documents are added.
        owners: The objects of documents before these, by uid.
    """
    namespaces = {**namespaces, **find_namespaces(documents)}
    with_rules = [(one, _rule_of(one, kinds)) for one in documents]
    owning = {owner.uid for obj, _ in with_rules if (owner := get_controller(obj))}
    here = [(get_text(obj, "metadata.uid"), obj, rule) for obj, rule in reversed(with_rules) if rule is not None]
    by_uid = {**{uid: _KnownOwner(rule, finish_of(obj, rule)) for uid, obj, rule in here if uid in owning}, **owners}
    objects = [(obj, rule) for obj, rule in with_rules if not _is_namespace(obj)]
    batch = BatchEvaluator([policy], kinds, partial(find_among, documents))
    for obj, rule in objects:
        if rule is not None:
            name = get_text(obj, "metadata.namespace")
            await batch.add(Snapshot(obj, now), rule, namespaces.get(name) or plain_namespace(name))

    async def find_unfinished(owner: ObjectRef) -> bool | None:
        if known := owners.get(owner.uid):
            return known.rule.keeps_dependents(is_finished=known.finish.finished)
        return is_unfinished_by_kind(owner, kinds)

    decided = iter(await batch.settle(find_unfinished))
    found = []
    for obj, rule in objects:
        if rule is None:
            found.append(_unknown(obj, now))
            continue
        one = next(decided)
        (decision,), (stop,) = one.decisions, one.stops
        decision = with_own_deletion(decision, rule)
        controller, namespace = _find_owner(obj, by_uid, kinds), namespaces.get(one.ref.namespace)
        related = find_related(obj, rule, decision.facts, owner=controller, namespace=namespace)
        if lacks_managed_fields(obj, rule, decision.facts.finish):
            related = replace(related, lacks_managed_fields=True)
        found.append(ObjectPreview(one.ref, decision, now, related, stop))
    return found


def _find_owner(obj: dict[str, Any], among: Mapping[str, _KnownOwner], kinds: Catalogue) -> Owner | None:
    """Find the controller owner of an object among the objects of the file."""
    ref = get_controller(obj)
    if ref is None:
        return None
    if known := among.get(ref.uid):
        return Owner(ref, describe_finish(known.finish, known.rule))
    rules = kinds.of(ref.group, ref.kind)
    by_kind = [describe_finish(UNFINISHED, rule) for rule in rules if rule.never_finishes] if rules else [NO_RULE]
    return Owner(ref, "; ".join(("not in this file", *by_kind[:1])))


def find_namespaces(documents: Iterable[dict[str, Any]]) -> dict[str, Namespace]:
    """Return the Namespaces among documents, by name; the last of one name counts."""
    return {one.ref.name: one for one in map(namespace_of, filter(_is_namespace, documents))}


def _is_namespace(obj: dict[str, Any]) -> bool:
    return (obj.get("apiVersion"), obj.get("kind")) == ("v1", "Namespace")


def _rule_of(obj: dict[str, Any], kinds: Catalogue) -> KindRule | None:
    return kinds.get(get_text(obj, "apiVersion"), get_text(obj, "kind"))


def _unknown(obj: dict[str, Any], now: datetime) -> ObjectPreview:
    ref = ref_of(obj)
    problem = f"no kind rule for kind {ref.kind or '(none)'} of apiVersion {ref.api_version or '(none)'}"
    return ObjectPreview(ref, Ignore(Reason.UNKNOWN_SHAPE, Facts(Finish(finished=None), problem=problem)), now)


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
    _owners: dict[str, _KnownOwner] = field(default_factory=dict)

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
                known = _KnownOwner(one.related.rule, one.decision.facts.finish)
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
