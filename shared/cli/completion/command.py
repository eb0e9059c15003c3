"""`completion`: the script that a shell loads."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, kinds, namespaces and objects in bash, zsh or fish.

    For bash, put `eval "$(ttl-after-finished completion bash)"` into ~/.bashrc. `kubectl ttl` is completed by kubectl's
    own completion, which finds `kubectl_complete-ttl` on the PATH.
    """
    root = ctx.find_root()
    name = "kubectl-ttl" if root.info_name == "kubectl-ttl" else "ttl-after-finished"
    variable = f"_{name.replace('-', '_').upper()}_COMPLETE"
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"expected one of {', '.join(SHELLS)}, got {shell}")
    click.echo(kind(root.command, {}, name, variable).source())
