"""Validate a kubeconfig before the client reads it: the client's errors name neither contexts nor commands."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from shared.core.objects import get_in, get_text, list_mappings, printable, quote
from shared.errors import PermanentError

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_HINT_MAX = 300
"""Maximum length of an installation hint that is shown."""


def check_kubeconfig(files: list[Path], context: str | None, place: str) -> None:
    """Raise an error of one sentence if a kubeconfig cannot be used.

    Args:
        files: The files that exist; of several contexts or users with one name, the first one is used.
        context: A context other than the current one.
        place: The name of the files in errors.

    Raises:
        PermanentError: A file is not a kubeconfig, the context does not exist, or its credential plugin is not
            installed.
        OSError: A file cannot be read.
        YAMLError: A file is not YAML.
    """
    read = [_read(file, place) for file in files]
    contexts = {get_text(one, "name"): one for one in reversed(list(_entries(read, "contexts")))}
    if not contexts:
        raise PermanentError(f"{place}: expected contexts, clusters and users, got no context")
    wanted = context or next((name for one in reversed(read) if (name := get_text(one, "current-context"))), "")
    names = printable(", ".join(sorted(contexts)))
    if not wanted:
        raise PermanentError(f"{place}: expected current-context, got none; select a context with --context: {names}")
    if wanted not in contexts:
        raise PermanentError(f"{place}: context {printable(wanted)!r} does not exist; expected one of: {names}")
    user = get_text(contexts[wanted], "context.user")
    users = {get_text(one, "name"): one for one in reversed(list(_entries(read, "users")))}
    _check_plugin(get_in(users.get(user, {}), "user.exec"), place)


def _read(file: Path, place: str) -> Any:
    with file.open(encoding="utf-8") as stream:
        document = yaml.load(stream, Loader=_Loader)  # noqa: S506 - a safe loader
    if not isinstance(document, dict):
        got = "an empty file" if document is None else quote(document)
        raise PermanentError(f"{place}: expected a mapping with contexts, clusters and users, got {got}: {file}")
    return document


def _entries(read: list[Any], section: str) -> Iterator[Any]:
    for one in read:
        yield from list_mappings(one, section)


def _check_plugin(plugin: Any, place: str) -> None:
    """Raise an error if the command that the client starts for credentials is not installed."""
    command = get_text(plugin, "command")
    paths = [get_text(one, "value") for one in list_mappings(plugin, "env") if get_text(one, "name") == "PATH"]
    if not command or shutil.which(command, path=paths[-1] if paths else None):
        return
    where = "is not an executable file" if "/" in command else "is not on the PATH"
    hint = " ".join(get_text(plugin, "installHint").split())[:_HINT_MAX]
    problem = f"{place}: the credential plugin of the context cannot be started: {command!r} {where}"
    raise PermanentError(printable(f"{problem}; {hint}" if hint else problem))
