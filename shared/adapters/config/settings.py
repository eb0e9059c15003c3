"""Settings from environment variables; no part of a function reads `os.environ` elsewhere, except `log_form`.

A TTL_ variable that is set but empty is rejected, since an unset variable often means more than any value. An empty
variable of Knative or OpenTelemetry means unset.

Each field of `Settings` says what its variable means, and which process reads it: docs/reference/settings.md is made
from it.
"""

import os
import re
from collections.abc import Mapping
from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from shared.adapters.config.timers_address import TimersSettings
from shared.adapters.http_client import is_token
from shared.core.archive.signature import UNSIGNED, SigningKeys
from shared.core.values.timing import parse_duration
from shared.errors import TtlError
from shared.usecases.archives.byte_gate import ARCHIVE_BYTES_MAX

_BOOLEANS: dict[str | bool, bool] = {"true": True, "false": False, True: True, False: False}

ALL_KINDS = "all"
"""The value that selects every known kind that can finish."""


def parse_boolean(value: str | bool) -> bool:
    """Parse `true` or `false`.

    Raises:
        ValueError: The value is another text, such as `yes` or `1`.
    """
    if value not in _BOOLEANS:
        raise ValueError("expected true or false")
    return _BOOLEANS[value]


def split_words(text: str) -> tuple[str, ...]:
    """Split comma-separated words and strip each.

    Raises:
        ValueError: The text has no word.
    """
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise ValueError("expected comma-separated names")
    return words


def parse_kinds(text: str) -> tuple[str, ...]:
    """Split comma-separated kinds; return no kind for `all`.

    Raises:
        ValueError: The text has no word.
    """
    words = split_words(text)
    return () if words == (ALL_KINDS,) else words


def check_server(value: str) -> str:
    """Validate a URL that tokens are sent to: https, or http to a loopback address.

    Raises:
        ValueError: The value is another URL, or no URL.
    """
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


def check_signing_keys(value: str) -> str:
    """Check the keys of archives.

    Raises:
        ValueError: There is none, or one is too short.
    """
    SigningKeys.parse(value)
    return value


def strip_token(value: str) -> str:
    """Strip and validate a token; a secret store often adds a line break at its end.

    Raises:
        ValueError: The token has a character that a header cannot hold.
    """
    token = value.strip()
    if not is_token(token):
        raise ValueError("expected a token of printable ASCII characters, without spaces")
    return token


class OtelSettings(BaseModel):
    """The settings of traces and pushed metrics that this project reads itself; the SDK reads all others.

    A value that the SDK would not know is no error here, since these variables may be meant for other programs too.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    otlp: str = Field(default="", alias="OTEL_EXPORTER_OTLP_ENDPOINT")
    """The URL of a receiver of OTLP over HTTP, such as `http://collector:4318`, for traces and metrics. It needs the
    extra `otel`, which the image has. The SDK reads the other variables of OpenTelemetry too.

    Read by: functions, run, watch.
    """
    otlp_traces: str = Field(default="", alias="OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    """The full URL for traces, with its path. It takes precedence.

    Read by: functions, run, watch.
    """
    otlp_metrics: str = Field(default="", alias="OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
    """The full URL for metrics, with its path. It takes precedence.

    Read by: functions, run, watch.
    """
    otlp_protocol: str = Field(default="", alias="OTEL_EXPORTER_OTLP_PROTOCOL")
    """The protocol. Only `http/protobuf`, the default, is supported.

    Read by: functions, run, watch.
    """
    traces_exporter: str = Field(default="otlp", alias="OTEL_TRACES_EXPORTER")
    """If it does not contain `otlp`, no traces are sent.

    Read by: functions, run, watch.
    """
    metrics_exporter: str = Field(default="otlp", alias="OTEL_METRICS_EXPORTER")
    """If it does not contain `otlp`, no metrics are sent.

    Read by: functions, run, watch.
    """
    metrics_interval_ms: int = Field(default=60_000, alias="OTEL_METRIC_EXPORT_INTERVAL", ge=1)
    """The milliseconds between two exports of metrics.

    Read by: functions, run, watch.
    """
    sdk_disabled: str = Field(default="", alias="OTEL_SDK_DISABLED")
    """If `true`, no traces and no metrics are sent.

    Read by: functions, run, watch.
    """
    function: str = Field(default="", alias="FUNCTION_TARGET")
    """The function of this process. It is the default of `OTEL_SERVICE_NAME`.

    Read by: functions.
    """

    @property
    def sends_traces(self) -> bool:
        """Whether traces are sent."""
        return self._sends(self.otlp_traces, self.traces_exporter)

    @property
    def sends_metrics(self) -> bool:
        """Whether metrics are sent."""
        return self._sends(self.otlp_metrics, self.metrics_exporter)

    def _sends(self, endpoint: str, exporter: str) -> bool:
        is_disabled = self.sdk_disabled.lower() == "true"
        return bool(self.otlp or endpoint) and not is_disabled and "otlp" in exporter.replace(" ", "").split(",")


# Variables that Kubernetes sets in a Pod for each Service of the namespace; a Service may be named `ttl`.
_SERVICE_LINK = re.compile(r"_SERVICE_HOST$|_SERVICE_PORT|_PORT$|_PORT_\d+_")

_PATTERNS = {
    "TTL_NAMESPACE": "expected the name of a namespace",
    "TTL_CLUSTER": "expected at most 63 letters, digits, dots, hyphens and underscores",
    "TTL_CALLERS_ISSUER": "expected https://HOST[:PORT][/PATH]",
    "K_SINK": "expected http://HOST[:PORT][/PATH], or https://",
    "TTL_SINK_ACCOUNT": "expected NAMESPACE/NAME of a service account",
    "TTL_TASKS_TARGET": "expected http://HOST[:PORT][/PATH], or https://",
    "TTL_TASKS_ACCOUNT": "expected the e-mail of a service account",
}
"""What a value must be, for each setting with a pattern: a user need not read a regular expression."""

ARCHIVE_KEYS = "TTL_ARCHIVE_KEYS"
"""The variable with the keys of the archives."""

_SECRETS = frozenset({"TTL_API_TOKEN", "TTL_PROOF_KEY", ARCHIVE_KEYS})


class SettingsError(TtlError):
    """An environment variable has an invalid value; the message names the variable and the expected value."""


class Settings(OtelSettings, TimersSettings):
    """The settings of a process, one field for each variable."""

    kinds: Annotated[tuple[str, ...], BeforeValidator(parse_kinds)] = Field(default=(), alias="TTL_KINDS")
    """Kinds that may be deleted, comma separated (`jobs,pods`), or `all`: every kind that can finish. The default is
    `all`.

    Read by: schedule, expire, enforce, archive, sweep, run, watch, plan.
    """
    kinds_dir: Path | None = Field(default=None, alias="TTL_KINDS_DIR")
    """A directory of your own kind rules. A rule for a shipped kind replaces the shipped rule.

    Read by: schedule, expire, enforce, archive, sweep, usage, run, watch, commands.
    """
    references_dir: Path | None = Field(default=None, alias="TTL_REFERENCES_DIR")
    """A directory of your own carrier rules, which list the fields that refer to Secrets and ConfigMaps. A rule for a
    shipped kind replaces the shipped rule.

    Read by: usage, run, commands.
    """
    policy: Path | None = Field(default=None, alias="TTL_POLICY")
    """The policy file. It is read again when its content changes. If it is not set, a function has no policy. `run` and
    the commands then apply the installed policy; in a Pod of the installation, `run` has none.

    Read by: schedule, expire, enforce, archive, sweep, usage, run, watch, commands.
    """
    dry_run: Annotated[bool, BeforeValidator(parse_boolean)] = Field(default=False, alias="TTL_DRY_RUN")
    """If `true`, decide and report, and delete nothing.

    Read by: expire, enforce, archive, sweep, usage, deadletter, run.
    """
    sweep_interval: Annotated[timedelta, BeforeValidator(parse_duration)] = Field(
        default=timedelta(minutes=10), alias="TTL_SWEEP_INTERVAL", ge=timedelta(seconds=1)
    )
    """The time between two sweeps, at least `1s`. An object gets a timer only if it is due within two intervals.

    Read by: schedule, timers, expire, enforce, sweep, run.
    """
    usage_interval: Annotated[timedelta, BeforeValidator(parse_duration)] = Field(
        default=timedelta(hours=1), alias="TTL_USAGE_INTERVAL", ge=timedelta(seconds=1)
    )
    """The time between two ticks of `usage`, at least `1s`: how often unused Secrets and ConfigMaps are looked for. On
    Knative, the schedule of the PingSource `usage` must be the same.

    Read by: usage, run.
    """
    concurrency: int = Field(default=64, alias="TTL_CONCURRENCY", ge=1, le=1_000)
    """How many objects a sweep, or a tick of `usage`, handles at once, from 1 to 1000.

    Read by: sweep, usage, run.
    """
    archive_bytes: int = Field(default=ARCHIVE_BYTES_MAX, alias="TTL_ARCHIVE_BYTES", ge=1024 * 1024)
    """The limit of the bytes of objects, children and logs that this process has on the way to archives, 1048576
    (1 MiB) or more. The default is 64 MiB. An object counts as 2 MiB until it is read. What exceeds the limit goes by
    itself. The namespaces take turns.

    Read by: archive, run.
    """
    home_namespace: str = Field(default="", alias="TTL_NAMESPACE", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    """The namespace of this installation, for its Kubernetes Events and its shared state. The default for shared state
    is `ttl-after-finished`, and for `run` the namespace of its Lease.

    Read by: expire, enforce, archive, sweep, usage, deadletter, run, commands.
    """
    journal: Annotated[bool, BeforeValidator(parse_boolean)] = Field(default=True, alias="TTL_JOURNAL")
    """If `false`, write no Kubernetes Events about deletions, stops, archives and refusals. The log lines and the
    CloudEvents have the same facts. Events about other decisions, such as `InvalidTtl`, are still written.

    Read by: expire, enforce, archive, sweep, usage, run.
    """
    cluster_name: str = Field(
        default="default", alias="TTL_CLUSTER", pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
    )
    """The name of this cluster in the keys of an archive, before its id. Set it so that people tell apart the
    clusters of one archive.

    Read by: archive, expire, sweep, run, commands.
    """
    metrics_port: int | None = Field(default=None, alias="TTL_METRICS_PORT", ge=1, le=65_535)
    """The port that serves Prometheus metrics. If it is not set, no port serves metrics; they can still be pushed.

    Read by: functions, run, watch.
    """
    log: Literal["json", "text"] | None = Field(default=None, alias="TTL_LOG")
    """The form of log lines: `json` (one object a line) or `text`. Functions have `json` by default, others `text`.

    Read by: functions, run, watch, commands.
    """
    api_server: Annotated[str, AfterValidator(check_server)] = Field(default="", alias="TTL_API_SERVER")
    """The URL of the API server, if the process has neither a ServiceAccount nor a kubeconfig. It needs one of
    `TTL_API_TOKEN`, `TTL_API_TOKEN_FILE` and `TTL_API_IDENTITY`.

    Read by: timers, expire, enforce, archive, sweep, usage, deadletter, run, watch, commands.
    """
    api_ca: str = Field(default="", alias="TTL_API_CA")
    """The certificates to trust for `TTL_API_SERVER`: PEM, base64 of PEM, or a file. The default is the system's.

    If the certificate of the API server is not trusted, a changed file is read again.

    Read by: as TTL_API_SERVER.
    """
    api_token: Annotated[SecretStr | None, BeforeValidator(strip_token)] = Field(default=None, alias="TTL_API_TOKEN")
    """The bearer token for `TTL_API_SERVER`.

    Read by: as TTL_API_SERVER.
    """
    api_token_file: Path | None = Field(default=None, alias="TTL_API_TOKEN_FILE")
    """A file with the bearer token for `TTL_API_SERVER`. It is read again when the token is rotated.

    Read by: as TTL_API_SERVER.
    """
    api_identity: Literal["google"] | None = Field(default=None, alias="TTL_API_IDENTITY")
    """If `google`, use Google's application default credentials for `TTL_API_SERVER`.

    Read by: as TTL_API_SERVER.
    """
    callers: Annotated[tuple[str, ...], BeforeValidator(split_words)] = Field(default=(), alias="TTL_CALLERS")
    """The subjects whose tokens a function accepts, comma separated. With timers in Cloud Tasks, `timers` also accepts
    the tokens of `TTL_TASKS_ACCOUNT`. If `TTL_CALLERS` is not set, a function accepts any request.

    Read by: functions.
    """
    callers_audience: str = Field(default="", alias="TTL_CALLERS_AUDIENCE")
    """The audience that the callers' tokens must have. `TTL_CALLERS` needs it.

    Read by: functions.
    """
    callers_issuer: str = Field(default="", alias="TTL_CALLERS_ISSUER", pattern=r"^(https://.+)?$")
    """The issuer of the callers' tokens: an `https` URL with OIDC discovery. The default is the cluster's API server.

    Read by: functions.
    """
    proof_key: Annotated[SecretStr | None, BeforeValidator(strip_token)] = Field(
        default=None, alias="TTL_PROOF_KEY", min_length=32
    )
    """The key of the proofs by which `expire` deletes an object without reading it: at least 32 random characters, the
    same for `expire`, `sweep` and our watch; no other function may have it. It takes effect only if `TTL_CALLERS` is
    set and the delete guard of the kind is in force.

    Read by: expire, sweep, watch.
    """
    archive_keys: Annotated[SecretStr | None, BeforeValidator(check_signing_keys)] = Field(
        default=None, alias=ARCHIVE_KEYS
    )
    """The keys that sign the documents of archives: each has at least 32 random characters, the first one signs, and
    all are accepted. They are separated by commas. With a key, a document without a valid signature is damaged: it is
    no acknowledgement, and is not restored. Webhooks get no signature.

    Read by: expire, archive, sweep, usage, run, commands.
    """
    sink: str = Field(default="", alias="K_SINK", pattern=r"^(https?://.+)?$")
    """The URL of the Broker, to which events are published. `kubectl get broker` prints it.

    Read by: timers, sweep, usage, watch.
    """
    sink_account: str = Field(default="", alias="TTL_SINK_ACCOUNT", pattern=r"^([a-z0-9-]+/[a-z0-9.-]+)?$")
    """The service account `NAMESPACE/NAME` that publishes to the Broker, for a process outside of the cluster. The
    process must be allowed to create its tokens. It needs `TTL_SINK_AUDIENCE`.

    Read by: timers, sweep, usage, watch.
    """
    sink_audience: str = Field(default="", alias="TTL_SINK_AUDIENCE")
    """The audience of the tokens of `TTL_SINK_ACCOUNT`, from the status of the Broker.

    Read by: timers, sweep, usage, watch.
    """


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
        if (name in known and (value or _is_own(name))) or (_is_own(name) and not _SERVICE_LINK.search(name))
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
        message = _PATTERNS.get(name, "") if first["type"] == "string_pattern_mismatch" else ""
        expected = message or first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        value = "a value that is not shown" if name in _SECRETS else repr(values[name])
        got = "" if ", got " in expected else f", got {value}"
        raise SettingsError(f"{name}: {expected}{got}") from None


def read_signing_keys(environment: Mapping[str, str] = os.environ) -> SigningKeys:  # noqa: TID251 - as above
    """Read the keys that sign documents: as the credentials of a store, each archive takes them from the environment.

    Raises:
        SettingsError: A key is too short.
    """
    text = environment.get(ARCHIVE_KEYS)
    try:
        return UNSIGNED if text is None else SigningKeys.parse(text)
    except ValueError as error:
        raise SettingsError(f"{ARCHIVE_KEYS}: {error}") from None


def _is_own(name: str) -> bool:
    return name.startswith("TTL_")


def state_folder(environment: Mapping[str, str] = os.environ) -> Path:  # noqa: TID251 - as above
    """Return the folder for a user's persistent state: `$XDG_STATE_HOME`, or `~/.local/state`."""
    return Path(environment.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
