"""Delete a due object without reading it: prove to a later call what was decided about one version of the object.

A process that has just read an object from the API server signs its decision: `Proofs.make`. When the timer with this
proof fires, `Proofs.find` checks that all that the decision rests on is still the same. The object itself is proven by
the precondition `resourceVersion` of the DELETE. If anything differs or is unknown, the object is read as without a
proof. See decision 36.
"""

import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from shared import __version__
from shared.core.decision.decide import Context, Decision, Expire, Ignore, Reason, find_wait
from shared.core.decision.facts import Facts
from shared.core.decision.finish import Finish
from shared.core.decision.namespaces import Namespace
from shared.core.kinds.rule import KindRule
from shared.core.policy.policy import NO_POLICY, Policy
from shared.core.ttl.ttl import Ttl, find_ttl_source
from shared.core.values.objects import ObjectRef, get_controller, get_in, get_text, ref_of
from shared.errors import PermanentError
from shared.evaluation.evaluator import AnyEvaluation, Evaluation, Evaluator
from shared.messages import Proof, Timer
from shared.ports import Cluster, Snapshot, loop_now

IsGuarded = Callable[[KindRule], Awaitable[bool]]
"""Returns whether the delete guard of a kind is in force for this process."""


_OWN = frozenset({"object", "native"})
"""The origins of a TTL that is set on the object itself."""


@dataclass(slots=True)
class Proofs:
    """Makes and checks proofs; both need the same key.

    Attributes:
        key: The common key of the processes that read objects from the API server.
        evaluator: The policy and the namespaces.
        cluster: The API server.
        is_authenticated: Whether this process verifies its callers, so that only the Broker can send it an event.
        is_guarded: Checks the delete guard.
    """

    key: bytes
    evaluator: Evaluator
    cluster: Cluster
    is_authenticated: bool
    is_guarded: IsGuarded
    _digests: dict[str, tuple[KindRule, str]] = field(default_factory=dict)

    def make(self, evaluation: AnyEvaluation, rule: KindRule, obj: dict[str, Any]) -> Proof | None:
        """Sign the decision about an object that was just read; None if it rests on more than a proof can cover.

        Args:
            evaluation: The decision.
            rule: The object's kind.
            obj: The object as the API server sent it.
        """
        decision, context = evaluation.decision, evaluation.context
        facts, namespace = decision.facts, context.namespace
        if isinstance(decision, Ignore) or namespace is None or facts.due_at is None or facts.ttl is None:
            return None
        if context.policy.archives:
            return None  # its children are read when it is due
        if not _is_alone(obj, rule, facts, facts.ttl) or not _is_identified(context.policy):
            return None
        try:
            proof = Proof(
                resource_version=get_text(obj, "metadata.resourceVersion"),
                due_at=facts.due_at,
                finished_at=facts.finish.at,
                outcome=facts.finish.outcome,
                ttl_from=facts.ttl.source,
                generate_name=get_text(obj, "metadata.generateName"),
            )
        except ValidationError:
            return None
        signature = self._sign(proof, ref_of(obj), rule, context.policy, namespace)
        return proof.model_copy(update={"signature": signature})

    async def find(self, timer: Timer, rule: KindRule) -> tuple[Snapshot, Evaluation[Decision]] | None:
        """Return the decision to delete the timer's object, by its proof; None if the object has to be read.

        The snapshot has only the identity of the object. If a fact changes before the DELETE, `decide` keeps such an
        object, and the caller reads it.

        Args:
            timer: The timer that fired.
            rule: The object's kind.

        Raises:
            TryLaterError: The API server is busy or away.
        """
        proof = timer.proof
        if proof is None or not self.is_authenticated or rule.scope != "Namespaced":
            return None
        try:
            namespace, policy = await self.evaluator.namespaces.get(timer.ref.namespace), self.evaluator.policy()
            if policy.archives or not self._is_signed(proof, timer.ref, rule, policy, namespace):
                return None
            if await self.cluster.is_aggregated(rule) or not await self.is_guarded(rule):
                return None
        except PermanentError:
            return None
        snapshot = await self.cluster.present(_stub_of(timer.ref, proof), due_at=proof.due_at)
        facts = _facts_of(proof)
        if snapshot is None or find_wait(proof.due_at, facts, snapshot.read_at, snapshot.ahead):
            return None
        context, now = Context(policy, namespace), loop_now()
        return snapshot, Evaluation(Expire(proof.due_at, Reason.EXPIRED, facts), context=context, at=now)

    def _is_signed(self, proof: Proof, ref: ObjectRef, rule: KindRule, policy: Policy, namespace: Namespace) -> bool:
        return _is_identified(policy) and hmac.compare_digest(
            self._sign(proof, ref, rule, policy, namespace), proof.signature
        )

    def _sign(self, proof: Proof, ref: ObjectRef, rule: KindRule, policy: Policy, namespace: Namespace) -> str:
        """Sign a proof with all that the decision rests on, so that a change of any of it makes the proof worthless."""
        signed = [
            __version__,
            [ref.api_version, ref.kind, ref.namespace, ref.name, ref.uid],
            proof.model_dump(mode="json", exclude={"signature"}),
            self._digest_of(rule),
            policy.digest,
            [namespace.labels, namespace.annotations, namespace.is_cut, namespace.problem],
        ]
        text = json.dumps(signed, sort_keys=True, separators=(",", ":"))
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def _digest_of(self, rule: KindRule) -> str:
        known = self._digests.get(rule.name)
        if known is None or known[0] is not rule:
            text = rule.model_dump_json(by_alias=True)
            known = self._digests[rule.name] = rule, hashlib.sha256(text.encode()).hexdigest()
        return known[1]


def _is_alone(obj: dict[str, Any], rule: KindRule, facts: Facts, ttl: Ttl) -> bool:
    """Return whether the decision about an object rests on no other object, archive or audit, with nothing to report.

    A controller owner, the TTL of another object, a rank in a group and a quota can change while the object does not.
    The finalizers of an object, the propagation of a policy rule and what moved the due time are not in a proof.
    """
    may_inherit = ttl.origin not in _OWN and find_ttl_source(obj, rule.ttl) is not None
    of_others = (
        get_controller(obj) or may_inherit,
        facts.keep_last_rule or facts.count_rule or facts.quota_rule or facts.unread or facts.early,
        facts.archiving or facts.archived or facts.audited_by,
    )
    is_plain = not (facts.problem or facts.overridden or facts.moved_by or get_in(obj, "metadata.finalizers"))
    propagation = facts.policy_rule.propagation if facts.policy_rule else None
    return rule.scope == "Namespaced" and is_plain and propagation is None and not any(of_others)


def _is_identified(policy: Policy) -> bool:
    """Return whether the digest of a policy stands for its rules."""
    return policy is NO_POLICY or bool(policy.digest)


def _stub_of(ref: ObjectRef, proof: Proof) -> dict[str, Any]:
    """The parts of an object that its DELETE and the safeguards need; `decide` keeps it, since it has no status."""
    metadata = {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid}
    metadata |= {"resourceVersion": proof.resource_version, "generateName": proof.generate_name}
    return {"apiVersion": ref.api_version, "kind": ref.kind, "metadata": metadata}


def _facts_of(proof: Proof) -> Facts:
    finish = Finish(finished=True, at=proof.finished_at, outcome=proof.outcome)
    return Facts(finish, ttl=Ttl(proof.ttl_from, at=proof.due_at), due_at=proof.due_at)
