from shared.core.archive.document import without_secret_data

SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "access",
        "annotations": {
            "kapp.k14s.io/original": '{"data": {"password": "aHVudGVyMg=="}}',
            "kubectl.kubernetes.io/last-applied-configuration": '{"data": {"password": "aHVudGVyMg=="}}',
            "ttlafterfinished.dev/ttl": "1h",
        },
    },
    "data": {"password": "aHVudGVyMg=="},
    "stringData": {"token": "hunter2"},
}


def test_secret_keeps_the_names_of_its_data_and_no_value():
    kept = without_secret_data(SECRET)

    assert (kept["data"], kept["stringData"]) == ({"password": ""}, {"token": ""})
    assert kept["metadata"]["annotations"] == {
        "kapp.k14s.io/original": "",
        "kubectl.kubernetes.io/last-applied-configuration": "",
        "ttlafterfinished.dev/ttl": "1h",
    }
    assert "hunter2" not in str(kept)
    assert "aHVudGVyMg" not in str(kept)


def test_other_object_is_unchanged():
    thing = {**SECRET, "kind": "ConfigMap"}

    assert without_secret_data(thing) is thing
