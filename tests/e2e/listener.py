"""A subscriber of the Broker that writes each event to its log: a Pod that is not ours, beside the functions."""

import json

from tests.e2e.cluster import SHELL, kubectl
from tests.e2e.installation import NAMESPACE, log_of

NAME = "listener"
_PORT = 8080

_SERVER = f"""
import http.server

class Listener(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        print(self.headers["Ce-Type"], body.decode(), flush=True)
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

http.server.HTTPServer(("", {_PORT}), Listener).serve_forever()
"""

_SCRIPT = f"""
command -v python3 >/dev/null && exec python3 -c '{_SERVER}'
while true; do
  printf 'HTTP/1.1 202 Accepted\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n' | nc -l -p {_PORT}
done
"""

_LABELS = {"serving.knative.dev/service": NAME}
"""By which `log_of` finds the Pod."""


def listen(type_: str) -> None:
    """Subscribe to a type of events, until the namespace of the installation is deleted."""
    for obj in (_pod(), _service(), _trigger(type_)):
        kubectl("-n", NAMESPACE, "apply", "-f", "-", given=json.dumps(obj))
    kubectl("-n", NAMESPACE, "wait", "--for=condition=Ready", "--timeout=2m", f"pod/{NAME}-0", f"trigger/{NAME}")


def heard() -> str:
    """All events so far, as text."""
    return log_of(NAME)


def _pod() -> dict[str, object]:
    container = {
        "name": "user-container",
        "image": SHELL,
        "command": ["sh", "-c", _SCRIPT],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    metadata = {"name": f"{NAME}-0", "labels": _LABELS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _service() -> dict[str, object]:
    spec = {"selector": _LABELS, "ports": [{"port": 80, "targetPort": _PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec}


def _trigger(type_: str) -> dict[str, object]:
    subscriber = {"ref": {"apiVersion": "v1", "kind": "Service", "name": NAME}}
    spec = {"broker": "default", "filters": [{"exact": {"type": type_}}], "subscriber": subscriber}
    return {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": {"name": NAME}, "spec": spec}
