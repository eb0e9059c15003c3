"""The commands that change an installation."""

from shared.installation.place import Place


def test_helm_release_is_upgraded():
    place = Place("ns", manifests="knative", options=("--context=west",), release="cleaner")
    upgrade = "helm --kube-context=west upgrade cleaner CHART --namespace=ns --reset-then-reuse-values"
    assert place.apply() == f"{upgrade}    # CHART is the chart of this version"
    hints = "after you fix the value in it; CHART is the chart of this version"
    assert place.apply("after you fix the value in it") == f"{upgrade}    # {hints}"
    added = place.apply(components=["source-watch", "proofs"])
    values = "--set=components.source-watch=true --set=components.proofs=true"
    assert added == f"{upgrade} {values}    # CHART is the chart of this version"
    paths = ("components/kind-job/rbac.yaml", "components/source-apiserver/job/rbac.yaml", "namespace/events.yaml")
    values = "--set=components.kind-job=true --set=components.source-apiserver/job=true"
    assert place.apply_files(*paths) == f"{upgrade} {values}    # CHART is the chart of this version"
    changed = place.apply("if there are three servers", settings={"TTL_NATS_REPLICAS": "3"})
    hints = "if there are three servers; CHART is the chart of this version"
    assert changed == f"{upgrade} --set-string=settings.TTL_NATS_REPLICAS=3    # {hints}"


def test_overlay_that_the_operator_names_counts_also_with_helm():
    place = Place("ns", manifests="knative", overlay="mine", release="cleaner")
    assert place.apply() == "kubectl apply -k mine"


def test_settings_are_named_behind_the_command():
    place = Place("ns", manifests="knative", overlay="mine")
    assert place.apply(settings={"TTL_KINDS": "all"}) == "kubectl apply -k mine    # with TTL_KINDS=all"
    changed = place.apply("if there are three servers", settings={"TTL_NATS_REPLICAS": "3"})
    assert changed == "kubectl apply -k mine    # with TTL_NATS_REPLICAS=3, if there are three servers"


def test_commands_select_the_checked_cluster():
    place = Place("ns", manifests="my knative", options=("--context=prod west",))
    assert place.command("get", "pods") == "kubectl '--context=prod west' -n ns get pods"
    assert place.apply() == (
        "kubectl '--context=prod west' apply -k 'my knative/overlays/knative'"
        "    # or the overlay that you installed (--overlay)"
    )
