"""components/proofs: which processes get the key, and what `expire` may read with it."""

from tests.manifests.composed import composed
from tests.manifests.test_manifests import of_kind, pod_specs


def test_only_the_processes_that_read_from_the_api_server_have_the_key():
    objects = composed("source-watch", "timers-sqlite", "proofs", "eventpolicy", base="overlays/knative")

    keys = {
        name: [one["valueFrom"] for one in spec["containers"][0].get("env", ()) if one["name"] == "TTL_PROOF_KEY"]
        for name, spec in pod_specs(objects)
    }

    secret = {"secretKeyRef": {"name": "proof-key", "key": "key"}}
    assert {name: values for name, values in keys.items() if values} == {
        name: [secret] for name in ("expire", "sweep", "source")
    }


def test_expire_may_read_the_delete_guard_and_not_change_it():
    objects = composed("proofs")
    (rule,) = of_kind(objects, "ClusterRole")["ttl-after-finished-proofs"]["rules"]
    (subject,) = of_kind(objects, "ClusterRoleBinding")["ttl-after-finished-proofs"]["subjects"]

    assert rule["resources"] == ["validatingadmissionpolicies", "validatingadmissionpolicybindings"]
    assert rule["verbs"] == ["get"]
    assert subject["name"] == "expire"
