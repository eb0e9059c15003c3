"""Options that several commands share, and how a command ends."""

import asyncio
import functools
import importlib.util
import logging
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shared.adapters.config.kind_files import read_catalogue
from shared.adapters.config.settings import SettingsError, read_settings
from shared.adapters.kubernetes.access import get_access
from shared.adapters.kubernetes.watched_versions import Memory
from shared.adapters.telemetry.logs import is_json
from shared.cli.scope_options import check_kinds, namespace_name
from shared.core.kinds.catalogue import Catalogue
from shared.core.policy.policy import NO_POLICY, Policy
from shared.errors import TtlError
from shared.evaluation.served import list_served, list_unserved
from shared.installation.defaults import HOME

if TYPE_CHECKING:  # the client takes half a second to load, and offline commands need none
    from shared.adapters.kubernetes.cluster import KubernetesCluster
    from shared.bootstrap.world import World


_CLUSTER = (
    click.option("--kubeconfig", metavar="FILE", help="The kubeconfig. Default: $KUBECONFIG, else ~/.kube/config."),
    click.option("--context", metavar="NAME", help="The context. Default: the current context of the kubeconfig."),
)
all_namespaces_option = click.option(
    "-n",
    "--namespace",
    default="",
    type=namespace_name,
    metavar="NAME",
    help="Only this namespace. Default: all.",
)
namespace_option = click.option(
    "-n", "--namespace", type=namespace_name, metavar="NAME", help="Its namespace. Default: that of the context."
)
kinds_option = click.option(
    "-k",
    "--kinds",
    metavar="NAMES",
    default="",
    callback=check_kinds,
    help="Only these kinds, comma separated (jobs,pods), or all. Default: $TTL_KINDS, else all known kinds.",
)
kinds_dir_option = click.option(
    "--kinds-dir",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A directory with your own kind rules. Default: $TTL_KINDS_DIR.",
)
policy_option = click.option(
    "--policy", metavar="FILE", type=click.Path(path_type=Path), help="The policy file. Default: $TTL_POLICY."
)
EXIT_CODES = {
    "0": "The command succeeded.",
    "1": "The command failed, or a check of it failed. Standard error has the message.",
    "2": "An option, an argument or an environment variable is wrong.",
    "3": "Only `plan --policy`: more objects would be deleted at once than `--limit`.",
    "130, 143": "Ctrl-C (SIGINT) or SIGTERM ended the command early. `run` and `watch` then end with 0.",
}
"""The exit codes of all commands; docs/reference/cli.md is made from the commands, and from these."""

NONE = "none"
"""In place of a file: no policy, whatever is in force."""
judged_option = click.option(
    "--policy",
    metavar="FILE|none",
    type=click.Path(path_type=Path),
    help="The policy file, or none. Default: $TTL_POLICY, else the policy of the installation.",
)
output = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The form of the output.",
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--kubeconfig and --context."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


def flags(kubeconfig: str | None, context: str | None) -> tuple[str, ...]:
    """What leads kubectl to the same cluster, too."""
    given = (("--kubeconfig", kubeconfig), ("--context", context))
    return tuple(f"{name}={value}" for name, value in given if value)


def home_namespace() -> str:
    """Where an installation is looked for: in $TTL_NAMESPACE, else where the manifests put it."""
    return read_settings().home_namespace or HOME


def known_kinds(kinds_dir: Path | None) -> Catalogue:
    """All kinds that are known: the shipped ones, and those of the user's directory.

    Raises:
        TtlError: A rule in it is none.
    """
    return read_catalogue(kinds_dir or read_settings().kinds_dir)


def read_policy(path: Path | None, kinds: Catalogue) -> Policy:
    """The policy of a file, or `none`, else that of $TTL_POLICY, else none.

    Raises:
        TtlError: The file is none.
    """
    if path == Path(NONE):
        return NO_POLICY
    path = path or read_settings().policy
    if path is None:
        return NO_POLICY
    from shared.adapters.config.policy_file import read_policy as read  # noqa: PLC0415 - only where there is one

    return read(path, kinds)


def say(text: str) -> None:
    """Tell the operator something on standard error; where the log is JSON, as a line of it."""
    if is_json():
        logging.getLogger("ttl").info(text)
    else:
        click.echo(text, err=True)


def show_progress(text: str) -> None:
    """Write over the present line of a terminal on standard error; an empty text clears the line."""
    if sys.stderr.isatty() and not is_json():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)


def warn(text: str, *, fg: str | None = None, bold: bool = False) -> None:
    """Likewise, in a color on a terminal; where the log is JSON, as a warning, which every command logs."""
    if is_json():
        logging.getLogger("ttl").warning(text)
    else:
        click.secho(text, fg=fg, bold=bold, err=True)


async def name_served(world: "World", cluster: "KubernetesCluster") -> str:
    """The enabled kinds that are served, as a start tells them, and what of the named ones is not."""
    served = await list_served(world.catalogue, cluster=cluster, namespace=world.namespace)
    groups = Counter(plural for plural, _ in {(rule.plural, rule.group) for rule in served})
    named = dict.fromkeys(rule.plural if groups[rule.plural] == 1 else rule.name for rule in served)
    plurals = ", ".join(named) or "nothing yet"
    absent = list_unserved(world.settings.kinds, served)
    return f"{plurals} (not served yet: {', '.join(absent)})" if absent else plurals


@asynccontextmanager
async def connected(
    kubeconfig: str | None, context: str | None, *, memory: Memory | None = None
) -> AsyncIterator["KubernetesCluster"]:
    """The cluster, until the block ends."""
    from shared.adapters.kubernetes.connect import connect  # noqa: PLC0415 - `--help` and offline commands need no client

    access = get_access(read_settings()) if kubeconfig is None and context is None else None
    cluster = await connect(access=access, kubeconfig=kubeconfig, context=context, memory=memory)
    try:
        yield cluster
    finally:
        await cluster.close()


def context_namespace(kubeconfig: str | None, context: str | None) -> str:
    """The namespace of the kubeconfig's context; `default` where it names none."""
    from shared.adapters.kubernetes.connect import get_namespace  # noqa: PLC0415 - as above

    return get_namespace(kubeconfig=kubeconfig, context=context) or "default"


def asynchronous(command: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a command in an event loop; what it raises on purpose becomes one sentence and exit code 1 (settings: 2).

    The first SIGINT or SIGTERM cancels the command: it may finish what is in flight and end well, else its exit code
    says that it was cut off. A second one ends it.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with asyncio.Runner(loop_factory=_new_loop) as runner:
                runner.run(_until_signalled(command(*args, **kwargs)))
        except TtlError as error:
            raise _as_exit(error) from None
        except ExceptionGroup as group:
            raise _first_ttl_error(group) from None

    return run


def _new_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop's if it is installed, since it halves the time of many small requests."""
    if importlib.util.find_spec("uvloop") is None:
        loop = asyncio.new_event_loop()
    else:
        from uvloop import new_event_loop  # noqa: PLC0415 - not made for every platform

        loop = new_event_loop()
    loop.set_exception_handler(_report_loop_error)
    return loop


def _report_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of the event loop itself, except one about a connection that this process has closed already.

    If TLS data arrives while a command closes its connections, uvloop logs "Fatal error on SSL protocol" with a stack
    trace, although nothing is lost.
    """
    transport = context.get("transport")
    if transport is not None and transport.is_closing():
        logging.getLogger("ttl").debug("a closed connection received data", exc_info=context.get("exception"))
        return
    loop.default_exception_handler(context)


async def _until_signalled(command: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(command)
    loop = asyncio.get_running_loop()
    caught: list[signal.Signals] = []

    def stop(number: signal.Signals) -> None:
        caught.append(number)
        task.cancel()
        loop.remove_signal_handler(number)  # the next one takes its default course

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        sys.exit(128 + caught[0] if caught else 1)  # what was cut off has not answered its question


def _first_ttl_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    ours, rest = group.split(TtlError)
    if rest is not None or ours is None:
        return group
    error: BaseException = ours
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return _as_exit(error)


class _SettingsExit(click.ClickException):
    """Exits as a wrong option does."""

    exit_code = 2


def _as_exit(error: BaseException) -> click.ClickException:
    return (_SettingsExit if isinstance(error, SettingsError) else click.ClickException)(str(error))
