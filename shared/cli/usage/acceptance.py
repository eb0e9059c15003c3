"""Accept a plan of unused objects, so that `doctor` no longer warns about the rules that it showed."""

import click

from shared.adapters.kubernetes.state_configmap import ConfigMapState
from shared.cli.deleters.brakes import find_user
from shared.cli.input.options import Options
from shared.cli.input.target import connected
from shared.cli.output.messages import inform
from shared.core.policy.policy import Policy
from shared.core.unused.rule_hashes import hash_unused_rules
from shared.errors import TtlError
from shared.safeguards.accepted_plan import AcceptedPlan, with_accepted_plan
from shared.safeguards.state_schema import NAME

accept_option = click.option(
    "--accept",
    is_flag=True,
    help="Record that you have seen what the rules with `unused` would delete. Then `doctor` warns about none of them "
    "until it changes. Not with --namespace or --kinds.",
)


def check_scope(options: Options, *, accept: bool) -> None:
    """Check that a plan shows all objects if it is accepted.

    Raises:
        UsageError: It shows only some of them.
    """
    if accept and (options.namespace or options.kinds):
        raise click.UsageError("--accept: expected a plan of all namespaces and kinds: leave out -n and -k")


async def accept_plan(options: Options, policy: Policy, namespace: str, *, code: int) -> None:
    """Record in the shared state of an installation that the rules with `unused` of a policy were planned.

    Args:
        options: The cluster.
        policy: The policy that was planned.
        namespace: The namespace of the installation.
        code: The exit code of the plan, which is accepted if it is 0.

    Raises:
        UsageError: No rule has `unused`.
        TtlError: The plan is not complete, or it cannot be recorded.
    """
    hashes = hash_unused_rules(policy)
    if not hashes:
        raise click.UsageError("--accept: expected a policy that has rules with unused; this one has none")
    if code:
        raise TtlError(f"the plan is not accepted: expected exit code 0, got {code}; solve the problems above first")
    async with connected(options) as cluster:
        user, at = await find_user(cluster)
        plan = AcceptedPlan(at, user, frozenset(hashes.values()))
        try:
            await ConfigMapState(cluster, namespace).write(lambda data: with_accepted_plan(data, plan))
        except TtlError as error:
            expected = f"expected the right to get and update ConfigMap {namespace}/{NAME}"
            raise TtlError(f"the plan is not accepted: {expected}: {error}") from None
    inform(f"accepted: the plan of {', '.join(hashes)}; recorded in ConfigMap {namespace}/{NAME}")
