"""Events posted from inside the cluster, by a Pod that is not ours."""

import shlex
import time
from typing import Any

from tests.e2e.cluster import create, get, kubectl, pod, wait

_SCRIPT = """
if command -v curl >/dev/null; then
  status=$(curl -s -m 60 -o /dev/null -w '%{{http_code}}' {curl} --data {data} {url})
else
  status=$(wget -S -O /dev/null {wget} --post-data {data} {url} 2>&1 |
    sed -n 's,.*HTTP/[0-9.]* \\([0-9]*\\).*,\\1,p' | head -n 1)
fi
test "$status" -lt 500 || exit 255
exit $((status - 200))
"""
_ASK = """
for url in {urls}; do
  if command -v curl >/dev/null; then
    until curl -s -m 5 -o /dev/null "$url"; do sleep 0.2; done
  else
    until wget -T 5 -S -O /dev/null "$url" 2>&1 | grep -q HTTP/; do sleep 0.2; done
  fi
done
"""
ANSWERING_SECONDS = 120

_NAMES_SECONDS = 6
"""Go reads a hosts file again, in which Pods of this machine find each other, after five seconds at the earliest."""

_AGAIN = 455
"""An exit code is one byte; what is meant by this one is 500 and more: come again."""

_ATTEMPTS = 6
_PAUSE_SECONDS = 1.0
"""Before the second attempt; it doubles, so that a function whose new Pod is starting is not given up."""

_NAMESPACE = "default"
_TOKENS = "/var/run/secrets/e2e"


def post(name: str, url: str, headers: dict[str, str], data: str, *, audience: str = "") -> int:
    """Post from a new Pod, and again as every source does while the answer is a 5xx; returns the HTTP status it saw.

    Args:
        name: The Pod's.
        url: Where to.
        headers: Without a token's.
        data: The body.
        audience: Sends a token of the Pod's own service account for it; none if empty.
    """
    quoted = [shlex.quote(f"{key}: {value}") for key, value in headers.items()]
    if audience:
        quoted.append(f'"Authorization: Bearer $(cat {_TOKENS}/token)"')
    script = _SCRIPT.format(
        curl=" ".join(f"-H {line}" for line in quoted),
        wget=" ".join(f"--header {line}" for line in quoted),
        data=shlex.quote(data),
        url=shlex.quote(url),
    )
    poster = pod(name, script, namespace=_NAMESPACE)
    if audience:
        token = {"serviceAccountToken": {"path": "token", "audience": audience}}
        poster["spec"]["volumes"] = [{"name": "tokens", "projected": {"sources": [token]}}]
        poster["spec"]["containers"][0]["volumeMounts"] = [{"name": "tokens", "mountPath": _TOKENS}]
    for attempt in range(_ATTEMPTS):
        poster["metadata"]["name"] = f"{name}-{attempt}"
        if (status := _run(poster)) != _AGAIN:
            break
        time.sleep(_PAUSE_SECONDS * 2**attempt)
    return status


def wait_until_answering(*urls: str) -> None:
    """Ask each from a new Pod until it answers anything, and wait until each process has the same addresses.

    Knative calls a function by the same name, and a new one's retries may be over before it reads its addresses again.
    """
    asked = " ".join(map(shlex.quote, urls))
    _run(pod("asks", _ASK.format(urls=asked), namespace=_NAMESPACE), ANSWERING_SECONDS)
    time.sleep(_NAMES_SECONDS)


def _run(poster: dict[str, Any], seconds: float = 60) -> int:
    name = poster["metadata"]["name"]
    create(poster)
    ended = wait(f"the end of {name}", lambda: _terminated(name), seconds)
    kubectl("-n", _NAMESPACE, "delete", "pod", name, "--wait=false")
    return 200 + int(ended["exitCode"])


def _terminated(name: str) -> dict[str, Any] | None:
    statuses = get("pod", name, namespace=_NAMESPACE)["status"].get("containerStatuses", [])
    return next((one["state"]["terminated"] for one in statuses if "terminated" in one["state"]), None)
