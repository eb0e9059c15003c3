"""components/archive: which processes get the credentials of a bucket, or the volume of a folder."""

import pytest

from tests.manifests.composed import composed
from tests.manifests.test_manifests import of_kind, pod_specs

USERS = {"archive", "expire", "sweep", "usage"}
"""They store documents, or read them back before a deletion."""


@pytest.mark.parametrize(
    ("base", "before", "users"), [("base", [], USERS), ("namespace", ["standalone"], {"standalone"})]
)
def test_credentials_are_in_the_environment_of_those_that_use_the_archive(base, before, users):
    objects = composed(*before, "archive/credentials", base=base)

    given = {name for name, spec in pod_specs(objects) if "archive-credentials" in secrets_of(spec)}

    assert given == users


def test_standalone_mounts_the_folder_of_the_policy():
    objects = composed("standalone", "archive/folder", base="namespace")
    mounted = {name: mount["mountPath"] for name, spec in pod_specs(objects) for mount in mounts_of(spec)}

    assert "archive" in of_kind(objects, "PersistentVolumeClaim")
    assert mounted == {"standalone": "/var/lib/ttl"}


def secrets_of(spec):
    return [one.get("secretRef", {}).get("name") for one in spec["containers"][0].get("envFrom", [])]


def mounts_of(spec):
    return [one for one in spec["containers"][0].get("volumeMounts", []) if one["name"] == "archive"]
