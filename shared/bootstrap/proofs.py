"""Build what deletes objects without reading them."""

import time
from typing import TYPE_CHECKING, cast

from shared.bootstrap.config import ProcessConfig
from shared.evaluation.evaluator import Evaluator
from shared.evaluation.proofs import Proofs
from shared.installation.guard_status import GuardCheck
from shared.ports import Cluster

if TYPE_CHECKING:
    from shared.adapters.kubernetes.cluster import KubernetesCluster


def build_proofs(config: ProcessConfig, evaluator: Evaluator, cluster: Cluster) -> Proofs:
    """Build the proofs of a process; without TTL_PROOF_KEY it can make and check none.

    Args:
        config: The configuration of the process.
        evaluator: Its evaluator.
        cluster: Its Kubernetes API.
    """
    key = config.settings.proof_key
    guards = GuardCheck(cast("KubernetesCluster", cluster), config.kinds, config.home_namespace, time.monotonic)
    return Proofs(
        key=key.get_secret_value().encode() if key else b"",
        evaluator=evaluator,
        cluster=cluster,
        is_authenticated=config.admit is not None,
        is_guarded=guards.is_in_force,
    )
