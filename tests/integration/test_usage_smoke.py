"""An unused ConfigMap and one that a Pod uses, on the shared server, through `run` as a user starts it."""

import pytest

from tests.integration.test_usage import Opted, Start, of_config_map, opted, start  # noqa: F401 - fixtures
from tests.servers import shared_server  # noqa: F401 - a fixture


@pytest.mark.smoke
def test_unused_config_map_is_deleted_and_one_that_a_pod_uses_is_kept(opted: Opted, start: Start) -> None:  # noqa: F811
    for name in ("used", "held", "gone"):
        opted.config_map(name)
    opted.post(f"{opted.path}/pods", metadata={"name": "web"}, spec=of_config_map("used"))
    annotations = {"metadata": {"annotations": {"ttlafterfinished.dev/hold": "audit"}}}
    opted.api.call("PATCH", f"{opted.path}/configmaps/held", annotations)

    run = start()
    opted.await_names("configmaps", {"used", "held"})
    opted.ticks(run, 2)

    assert opted.names("configmaps") == {"used", "held"}
