"""Connect to the API server of a kubeconfig's context. The only module that imports the Kubernetes client.

A kubeconfig is validated before the client reads it: the client's errors name neither contexts nor commands.
"""

import asyncio
import os
import shutil
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from aiohttp import ClientSession, TCPConnector, encode_basic_auth
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import kube_config
from kubernetes.aio.config.openid import OpenIDRequestor

from shared.adapters.config.settings import SettingsError
from shared.adapters.config.yaml_file import SafeLoader, describe_error
from shared.adapters.http_client import refuse_redirects
from shared.adapters.kubernetes.access import tls_context
from shared.adapters.kubernetes.transport import Transport, get_proxy
from shared.core.values.objects import get_in, get_text, list_mappings, printable, quote
from shared.errors import PermanentError

REFRESH_SECONDS = 30
"""Interval of the refresh of an exec plugin's token; the client itself loads it once."""


class _OidcIssuer(OpenIDRequestor):  # type: ignore[misc]  # the client has no types
    """The OIDC issuer of a kubeconfig's auth-provider `oidc`; the refresh token is sent to this issuer only.

    The client's own class follows redirects, and verifies certificates only if the kubeconfig names a CA.
    """

    def _client_session(self) -> ClientSession:
        account = encode_basic_auth(self._client_id, self._client_secret)
        return ClientSession(
            headers={**self._default_headers, "Authorization": account},
            connector=TCPConnector(ssl=ssl.create_default_context(cafile=self._ssl_ca_cert)),
            raise_for_status=True,
            trust_env=True,
            middlewares=(refuse_redirects,),
        )


kube_config.OpenIDRequestor = _OidcIssuer  # the client has no setting for this class


async def transport_of(kubeconfig: str | None, context: str | None) -> tuple[Transport, asyncio.Task[None]]:
    """Return the transport of a kubeconfig's context, and the task that renews its credentials.

    Args:
        kubeconfig: A file; `$KUBECONFIG` or `~/.kube/config` if None.
        context: A context other than the current one.

    Raises:
        PermanentError: The kubeconfig cannot be used; the message names the error in one sentence.
    """
    settings = Configuration()
    place = f"kubeconfig {kubeconfig}" if kubeconfig else "kubeconfig ($KUBECONFIG or ~/.kube/config)"
    paths = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
    files = _files(paths)
    if not files:
        raise PermanentError(f"{place}: the file does not exist" + ("" if kubeconfig else f": {printable(paths)}"))
    try:
        check_kubeconfig(files, context, place)
        loader = await config.load_kube_config(
            config_file=kubeconfig, context=context, client_configuration=settings, persist_config=False
        )
        settings.proxy = settings.proxy or get_proxy(settings.host)
        transport = _transport(settings)
    except config.ConfigException as error:
        raise PermanentError(f"{place}: {error}") from None
    except yaml.YAMLError as error:
        raise PermanentError(f"{place}: {describe_error(error)}") from None
    except (OSError, ValueError) as error:
        raise PermanentError(f"{place}: {error or type(error).__name__}") from None
    except (TypeError, AttributeError, KeyError) as error:  # the client's errors for missing entries
        expected = "expected contexts, clusters and users that refer to each other"
        raise PermanentError(f"{place}: {expected} ({error})") from None
    if not settings.host:
        raise PermanentError(f"{place}: expected `server` in the context's cluster, got none")
    if "exec" in loader._user and not settings.api_key and not settings.cert_file:  # noqa: SLF001 - a failure is only logged
        raise PermanentError(f"{place}: the context's credential plugin returned no credentials; see the log")
    return transport, asyncio.create_task(config.refresh_token(loader, settings, REFRESH_SECONDS))


def _transport(settings: Any) -> Transport:
    """Return the transport that a configuration of the client describes.

    Raises:
        OSError: A certificate, key or CA cannot be read, or is not valid.
    """
    tls = tls_context(ca_file=settings.ssl_ca_cert)
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    options = {"proxy": settings.proxy, "proxy_headers": settings.proxy_headers}
    options["server_hostname"] = settings.tls_server_name
    given = {name: value for name, value in options.items() if value}
    authorization = partial(settings.get_api_key_with_prefix, "BearerToken", alias="authorization")
    return Transport(settings.host, tls, given, authorization)


def _files(names: str) -> list[Path]:
    files = (Path(name).expanduser() for name in names.split(os.pathsep) if name)
    return [file for file in files if file.is_file()]


def get_namespace(*, kubeconfig: str | None = None, context: str | None = None) -> str | None:
    """Return the namespace of a kubeconfig's context; None if it sets none, or if there is no kubeconfig."""
    try:
        contexts, current = config.list_kube_config_contexts(
            config_file=kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
        )
    except (config.ConfigException, OSError, yaml.YAMLError, TypeError, AttributeError, KeyError):
        return None
    wanted = context or current.get("name")
    return next((one["context"].get("namespace") for one in contexts if one.get("name") == wanted), None)


_HINT_MAX = 300
"""Maximum length of an installation hint that is shown."""


def check_kubeconfig(files: list[Path], context: str | None, place: str) -> None:
    """Raise an error of one sentence if a kubeconfig cannot be used.

    Args:
        files: The files that exist; of several contexts or users with one name, the first one is used.
        context: A context other than the current one.
        place: The name of the files in errors.

    Raises:
        SettingsError: No context has this name.
        PermanentError: A file is not a kubeconfig, the context does not exist, or its credential plugin is not
            installed.
        OSError: A file cannot be read.
        YAMLError: A file is not YAML.
    """
    read = [_read(file, place) for file in files]
    contexts, users = (
        {get_text(one, "name"): one for file in reversed(read) for one in reversed(list(list_mappings(file, section)))}
        for section in ("contexts", "users")
    )
    if not contexts:
        raise PermanentError(f"{place}: expected contexts, clusters and users, got no context")
    wanted = context or next((name for one in reversed(read) if (name := get_text(one, "current-context"))), "")
    names = printable(", ".join(sorted(contexts)))
    if not wanted:
        raise PermanentError(f"{place}: expected current-context, got none; select a context with --context: {names}")
    if context and context not in contexts:
        raise SettingsError(f"--context: expected a context of {place}, one of: {names}; got {printable(context)!r}")
    if wanted not in contexts:
        raise PermanentError(f"{place}: context {printable(wanted)!r} does not exist; expected one of: {names}")
    user = get_text(contexts[wanted], "context.user")
    _check_plugin(get_in(users.get(user, {}), "user.exec"), place)


def _read(file: Path, place: str) -> Any:
    with file.open(encoding="utf-8") as stream:
        document = yaml.load(stream, Loader=SafeLoader)  # noqa: S506 - a safe loader
    if not isinstance(document, dict):
        # A text is not shown: it may be a token.
        got = "an empty file" if document is None else "a text" if isinstance(document, str) else quote(document)
        raise PermanentError(f"{place}: expected a mapping with contexts, clusters and users, got {got}: {file}")
    return document


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
