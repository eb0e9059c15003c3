"""The value of TTL_TIMERS, which is the timer engine and where it keeps the timers; and how its servers are reached."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

TIMERS_EXPECTED = (
    "expected sqlite:PATH, nats://HOST:PORT[,nats://HOST:PORT...][/STREAM], tls://HOST:PORT[...][/STREAM], or "
    "cloudtasks:projects/PROJECT/locations/LOCATION/queues/QUEUE"
)

NATS_STREAM = "ttl-timers"
"""The stream of the timers if the address names none."""

NATS_PORT = 4222
"""The port of a NATS server if the address names none."""

_NATS_SCHEMES = ("nats", "tls")
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,64}")
_QUEUE = re.compile(r"projects/[a-z0-9:.-]{1,64}/locations/[a-z0-9-]{1,64}/queues/[A-Za-z0-9-]{1,100}")


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """Timers in a file.

    Attributes:
        path: The file.
        engine: The name of the engine.
    """

    engine: ClassVar[str] = "sqlite"
    path: Path

    def __str__(self) -> str:
        """Return the value of TTL_TIMERS."""
        return f"sqlite:{self.path}"


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Timers in a stream of NATS JetStream.

    Attributes:
        servers: The URLs of some servers of the cluster, without a user and a password.
        stream: The name of the stream.
        engine: The name of the engine.
    """

    engine: ClassVar[str] = "nats"
    servers: tuple[str, ...]
    stream: str = NATS_STREAM

    def __str__(self) -> str:
        """Return the value of TTL_TIMERS."""
        return f"{','.join(self.servers)}/{self.stream}"


@dataclass(frozen=True, slots=True)
class CloudTasksAddress:
    """Timers as tasks of a queue of Google Cloud Tasks.

    Attributes:
        queue: `projects/PROJECT/locations/LOCATION/queues/QUEUE`.
        engine: The name of the engine.
    """

    engine: ClassVar[str] = "cloudtasks"
    queue: str

    def __str__(self) -> str:
        """Return the value of TTL_TIMERS."""
        return f"cloudtasks:{self.queue}"


TimersAddress = SqliteAddress | NatsAddress | CloudTasksAddress


def parse_timers_address(value: object) -> TimersAddress:
    """Read the value of TTL_TIMERS; an address that is read already is returned.

    Raises:
        ValueError: It is none of the known forms; the message says what was expected, and shows no password.
    """
    if isinstance(value, SqliteAddress | NatsAddress | CloudTasksAddress):
        return value
    text = str(value)
    scheme, _, rest = text.partition(":")
    if scheme == "sqlite" and rest:
        return SqliteAddress(Path(rest))
    if scheme in _NATS_SCHEMES and rest.startswith("//"):
        return _parse_nats(text)
    if scheme == "cloudtasks" and _QUEUE.fullmatch(rest):
        return CloudTasksAddress(rest)
    raise ValueError(TIMERS_EXPECTED)


def _parse_nats(text: str) -> NatsAddress:
    *firsts, last = text.split(",")
    last_url = urlsplit(last)
    stream = last_url.path.removeprefix("/") or NATS_STREAM
    if not _STREAM.fullmatch(stream):
        raise ValueError(
            f"expected a stream of letters, digits, - and _ (at most 64) after the last server; {TIMERS_EXPECTED}"
        )
    servers = (*firsts, f"{last_url.scheme}://{last_url.netloc}")
    return NatsAddress(tuple(_check_server(server) for server in servers), stream)


def _check_server(server: str) -> str:
    url = urlsplit(server)
    if url.username is not None or url.password is not None:
        raise ValueError("expected no user or password in the URL; set TTL_NATS_CREDENTIALS to a credentials file")
    try:
        port = url.port or NATS_PORT
    except ValueError as error:
        raise ValueError(TIMERS_EXPECTED) from error
    if url.scheme not in _NATS_SCHEMES or not url.hostname or url.path or url.query or url.fragment:
        raise ValueError(TIMERS_EXPECTED)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{url.scheme}://{host}:{port}"


NATS_BYTES = 1024 * 1024 * 1024
"""The maximum size of the stream of the timers, unless TTL_NATS_BYTES names another one."""


class TimersSettings(BaseModel):
    """The settings of the timers, one field for each variable."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    timers: Annotated[TimersAddress | None, BeforeValidator(parse_timers_address)] = Field(
        default=None, alias="TTL_TIMERS"
    )
    """Where the timers are: `sqlite:PATH`, `nats://HOST:PORT[,...][/STREAM]`, `tls://HOST:PORT[,...][/STREAM]`, or
    `cloudtasks:projects/PROJECT/locations/LOCATION/queues/QUEUE`. The default is `sqlite:timers.db`. `run` has one file
    for each cluster, in `$XDG_STATE_HOME/ttl-after-finished` or `~/.local/state/ttl-after-finished`.

    Read by: timers, run, commands.
    """
    nats_credentials: Path | None = Field(default=None, alias="TTL_NATS_CREDENTIALS")
    """The credentials file of a NATS user (JWT and seed, as `nsc` writes it).

    Read by: timers, run, commands.
    """
    nats_ca: Path | None = Field(default=None, alias="TTL_NATS_CA")
    """A PEM file with the certificates that sign those of the NATS servers. The default is the system's.

    Read by: timers, run, commands.
    """
    nats_certificate: Path | None = Field(default=None, alias="TTL_NATS_CERTIFICATE")
    """A PEM file with the client certificate for NATS. It needs `TTL_NATS_KEY`.

    Read by: timers, run, commands.
    """
    nats_key: Path | None = Field(default=None, alias="TTL_NATS_KEY")
    """A PEM file with the private key of `TTL_NATS_CERTIFICATE`.

    Read by: timers, run, commands.
    """
    nats_replicas: int = Field(default=1, alias="TTL_NATS_REPLICAS", ge=1, le=5)
    """On how many NATS servers the stream of the timers is stored, from 1 to 5. Set 3 in production.

    Read by: timers, run, commands.
    """
    nats_bytes: int = Field(default=NATS_BYTES, alias="TTL_NATS_BYTES", ge=1024 * 1024)
    """The maximum size of the stream of the timers, at least 1048576 (1 MiB). The default is 1 GiB, about one million
    timers. If the stream is full, new timers are refused until others have fired.

    Read by: timers, run, commands.
    """
    tasks_target: str = Field(default="", alias="TTL_TASKS_TARGET", pattern=r"^(https?://.+)?$")
    """The URL of the function `timers`, which Cloud Tasks calls when a timer is due. `cloudtasks` needs it.

    Read by: timers, commands.
    """
    tasks_account: str = Field(default="", alias="TTL_TASKS_ACCOUNT", pattern=r"^([^@\s]+@[^@\s]+)?$")
    """The e-mail of the Google service account whose identity token Cloud Tasks sends to `TTL_TASKS_TARGET`. The
    audience is `TTL_CALLERS_AUDIENCE`, else the URL. `timers` verifies this token only if `TTL_CALLERS` is set.

    Read by: timers, commands.
    """
