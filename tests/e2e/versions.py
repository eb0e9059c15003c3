"""Two versions in one installation: which function runs in which of them.

E2E_FORMER_IMAGE names the image of the former version.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e import installation
from tests.e2e.cluster import kubectl, wait

FORMER_IMAGE = os.environ.get("E2E_FORMER_IMAGE", "")

Images = Mapping[str, str]
"""The image of each function."""

needs_former_version = pytest.mark.skipif(
    not FORMER_IMAGE, reason="needs the image of the former version: E2E_FORMER_IMAGE"
)


def image_of(function: str) -> str:
    path = "jsonpath={.spec.template.spec.containers[0].image}"
    return kubectl("-n", installation.NAMESPACE, "get", "ksvc", function, "-o", path)


def use(images: Images) -> None:
    """Give the functions these images, and wait until their newest revision is ready, and no Pod has another image.

    With Knative Serving, a function that nothing calls has no Pod.
    """
    changed = {function: image for function, image in images.items() if image != image_of(function)}
    for function, image in changed.items():
        change = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
        kubectl("-n", installation.NAMESPACE, "patch", "ksvc", function, "--type=json", "-p", json.dumps(change))

    has_serving = "E2E_SERVING" in os.environ

    def are_used() -> bool:
        services, found = installation.services(), images_of_pods()
        if has_serving and not all(is_ready(services[function]) for function in changed):
            return False
        return all(found.get(one, {image} if has_serving else set()) == {image} for one, image in changed.items())

    wait(f"ready Pods with {changed}", are_used)


def is_ready(service: dict[str, Any]) -> bool:
    """Return whether a Knative Service is ready as it was written last: its newest revision gets all requests."""
    status = service.get("status", {})
    ready = [one["status"] for one in status.get("conditions", []) if one["type"] == "Ready"]
    return bool(status.get("observedGeneration") == service["metadata"]["generation"] and ready == ["True"])


def images_of_pods() -> dict[str, set[str]]:
    """The images of the Pods that are not on their way out, by function; empty for one that is not ready."""
    found: dict[str, set[str]] = {}
    selector = ("-l", "serving.knative.dev/service", "-o", "json")
    for pod in json.loads(kubectl("-n", installation.NAMESPACE, "get", "pods", *selector))["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            conditions = pod["status"].get("conditions", [])
            is_ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
            image = pod["spec"]["containers"][0]["image"]
            found.setdefault(pod["metadata"]["labels"]["serving.knative.dev/service"], set()).add(image * is_ready)
    return found
