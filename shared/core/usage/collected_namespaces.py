"""Find the namespaces in which a policy may have unused Secrets and ConfigMaps marked or deleted.

A pass has to prove something only about the objects of these. In any other namespace, the decision about each object is
to keep it, whatever refers to it.
"""

from collections.abc import Callable, Iterable

from shared.core.decision.namespaces import Namespace
from shared.core.policy.matching import Subject
from shared.core.policy.policy_rule import PolicyRule
from shared.core.policy.unused import is_opted_in
from shared.core.usage.never_collected import SYSTEM_NAMESPACES


def collected_by(policy_rules: Iterable[PolicyRule]) -> Callable[[Namespace], bool]:
    """Return a test whether one of some policy rules may have unused objects of a namespace marked or deleted.

    What else a rule matches, such as labels of the objects, is not considered.
    """
    rules = [
        (rule.match, tuple(rule.match.namespaces.tests()) if rule.match.namespaces else ())
        for rule in policy_rules
        if rule.unused is not None
    ]

    def is_collected(namespace: Namespace) -> bool:
        name = namespace.ref.name
        if name in SYSTEM_NAMESPACES or namespace.problem or namespace.is_exempt:
            return False
        subject = Subject({}, None, namespace, name)
        return any(is_opted_in(match, namespace) and all(test(subject) for test in tests) for match, tests in rules)

    return is_collected
