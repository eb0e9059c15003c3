"""The settings of the timers: where they are, and how their servers are reached."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from shared.adapters.config.timers_address import TimersAddress, parse_timers_address

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
