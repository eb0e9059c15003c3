"""Settings from environment variables; no other module reads `os.environ`.

A TTL_ variable that is set but empty is rejected, since an unset variable often means more than any value.

TTL_KINDS                 kinds whose objects may be deleted, comma-separated (jobs,pods), or all; all if unset
TTL_KINDS_DIR             a directory of kind rules; they are added to the shipped rules, or replace them
TTL_POLICY                a policy file, reread when it changes; no policy if unset
TTL_DRY_RUN               true: decide and report, delete nothing
TTL_SWEEP_INTERVAL        time between two sweeps (10m)
TTL_CONCURRENCY           maximum number of concurrent DELETEs (64)
TTL_TIMERS_PATH           the SQLite file of the timers (timers.db)
TTL_NAMESPACE             namespace of this installation, for its Events and shared state (if unset: see README)
TTL_METRICS_PORT          port that serves Prometheus metrics; not served if unset
TTL_LOG                   json (one object a line) or text
TTL_API_SERVER            the API server's URL, if this process runs outside its cluster and has no kubeconfig
TTL_API_CA                CA of that server: PEM, base64 of PEM, or a file; the system's CAs if unset
TTL_API_TOKEN             identity at that server: a bearer token
TTL_API_TOKEN_FILE        or a file with a bearer token, reread when it is rotated
TTL_API_IDENTITY          or google: Google's application default credentials
TTL_CALLERS               token subjects that may call a function, comma-separated; callers need no token if unset
TTL_CALLERS_AUDIENCE      expected audience of those tokens
TTL_CALLERS_ISSUER        issuer of those tokens: an https URL; the API server of the cluster if unset
K_SINK                    URL that events are published to: the Broker, set by Knative's SinkBinding
TTL_SINK_ACCOUNT          identity at the Broker outside the cluster: the service account NAMESPACE/NAME of the tokens
TTL_SINK_AUDIENCE         audience of those tokens: the audience in the Broker's status
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from shared.adapters.auth.identity import is_token
from shared.core.ttl.durations import parse_duration
from shared.errors import TtlError

# Variables that Kubernetes sets in a Pod for each Service of the namespace; a Service may be named `ttl`.
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT|_PORT$|_PORT_\d+_")

_SECRETS = frozenset({"TTL_API_TOKEN"})

_SINK = "K_SINK"
"""Set by Knative, so an empty value is accepted and means unset."""

ALL_KINDS = "all"
"""The value that selects every known kind that can finish."""


class SettingsError(TtlError):
    """An environment variable has an invalid value; the message names the variable and the expected value."""


def split_words(text: str) -> tuple[str, ...]:
    """Split comma-separated words and strip each.

    Raises:
        ValueError: The text has no word.
    """
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("expected comma-separated names")
    return words


def split_kinds(text: str) -> tuple[str, ...]:
    """Split comma-separated kinds; return no kind for `all`.

    Raises:
        ValueError: The text has no word.
    """
    words = split_words(text)
    return () if words == (ALL_KINDS,) else words


def _words(value: Any) -> Any:
    return split_words(value) if isinstance(value, str) else value


def _kinds(value: Any) -> Any:
    return split_kinds(value) if isinstance(value, str) else value


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else value


def _server(value: str) -> str:
    """Validate a URL that tokens are sent to: https, or http to a loopback address."""
    try:
        url = urlsplit(value)
        _ = url.port
    except ValueError:
        raise ValueError("expected a URL") from None
    if not url.hostname or url.query or url.fragment or url.username is not None:
        raise ValueError("expected https://HOST[:PORT]")
    if url.scheme != "https" and not (url.scheme == "http" and _is_loopback(url.hostname)):
        raise ValueError("expected https://, or http:// to a loopback address")
    return value.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _secret(value: Any) -> Any:
    """Strip and validate a token; a secret store often adds a line break at its end."""
    if isinstance(value, str) and not is_token(value := value.strip()):
        raise ValueError("expected a token of printable ASCII characters, without spaces")
    return value


class Settings(BaseModel):
    """The settings of a process; the module's docstring lists the variables."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kinds: Annotated[tuple[str, ...], BeforeValidator(_kinds)] = Field(default=(), alias="TTL_KINDS")
    kinds_dir: Path | None = Field(default=None, alias="TTL_KINDS_DIR")
    policy: Path | None = Field(default=None, alias="TTL_POLICY")
    dry_run: bool = Field(default=False, alias="TTL_DRY_RUN")
    sweep_interval: Annotated[timedelta, BeforeValidator(_duration)] = Field(
        default=timedelta(minutes=10), alias="TTL_SWEEP_INTERVAL", ge=timedelta(seconds=1)
    )
    concurrency: int = Field(default=64, alias="TTL_CONCURRENCY", ge=1, le=1_000)
    timers_path: Path | None = Field(default=None, alias="TTL_TIMERS_PATH")
    home_namespace: str = Field(default="", alias="TTL_NAMESPACE", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    metrics_port: int | None = Field(default=None, alias="TTL_METRICS_PORT", ge=1, le=65_535)
    log: Literal["json", "text"] | None = Field(default=None, alias="TTL_LOG")
    api_server: Annotated[str, AfterValidator(_server)] = Field(default="", alias="TTL_API_SERVER")
    api_ca: str = Field(default="", alias="TTL_API_CA")
    api_token: Annotated[SecretStr | None, BeforeValidator(_secret)] = Field(default=None, alias="TTL_API_TOKEN")
    api_token_file: Path | None = Field(default=None, alias="TTL_API_TOKEN_FILE")
    api_identity: Literal["google"] | None = Field(default=None, alias="TTL_API_IDENTITY")
    callers: Annotated[tuple[str, ...], BeforeValidator(_words)] = Field(default=(), alias="TTL_CALLERS")
    callers_audience: str = Field(default="", alias="TTL_CALLERS_AUDIENCE")
    callers_issuer: str = Field(default="", alias="TTL_CALLERS_ISSUER", pattern=r"^(https://.+)?$")
    sink: str = Field(default="", alias=_SINK, pattern=r"^(https?://.+)?$")
    sink_account: str = Field(default="", alias="TTL_SINK_ACCOUNT", pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$")
    sink_audience: str = Field(default="", alias="TTL_SINK_AUDIENCE")


def read_settings(
    given: Mapping[str, str] | None = None,
    environment: Mapping[str, str] = os.environ,  # noqa: TID251 - this is the one reader
) -> Settings:
    """Read the settings; an unset variable has its default.

    Args:
        given: Variables that override the environment.
        environment: Variables by name.

    Raises:
        SettingsError: A value is invalid or empty, or a variable that begins with TTL_ is unknown.
    """
    known = {str(field.alias) for field in Settings.model_fields.values()}
    values = {
        name: value
        for name, value in {**environment, **(given or {})}.items()
        if (name in known and (value or name != _SINK)) or (name.startswith("TTL_") and not _SERVICE_LINK.search(name))
    }
    for name in known & values.keys():
        if not values[name].strip():
            raise SettingsError(f"{name}: expected a value, got an empty one; unset it to use its default")
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            raise SettingsError(f"{name}: unknown setting; expected one of {', '.join(sorted(known))}") from None
        expected = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        value = "a value that is not shown" if name in _SECRETS else repr(values[name])
        got = "" if ", got " in expected else f", got {value}"
        raise SettingsError(f"{name}: {expected}{got}") from None


def log_form(environment: Mapping[str, str] = os.environ) -> str:  # noqa: TID251 - as above
    """Return the form of the log (`json` or `text`) for settings errors; empty if TTL_LOG is neither."""
    form = environment.get("TTL_LOG", "")
    return form if form in ("json", "text") else ""


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:  # noqa: TID251 - as above
    """Return the folder for a user's persistent state: `$XDG_STATE_HOME`, or `~/.local/state`."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
