"""The commands that change an installation."""

from shared.installation.place import Place


def test_commands_select_the_checked_cluster():
    place = Place("ns", manifests="my knative", options=("--context=prod west",))
    assert place.command("get", "pods") == "kubectl '--context=prod west' -n ns get pods"
    assert place.apply() == (
        "kubectl '--context=prod west' apply -k 'my knative/overlays/knative'"
        "    # or the overlay that you installed (--overlay)"
    )
