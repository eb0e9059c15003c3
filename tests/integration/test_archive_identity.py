"""A volume that is not mounted, and another bucket, on a real kube-apiserver and a real S3 server, through `run`."""

import json
import shutil

from shared.core.archive.identity import MARKER
from tests.integration.conftest import run_command
from tests.integration.test_archive import cluster, options, s3  # noqa: F401 - fixtures
from tests.servers import shared_server  # noqa: F401 - a fixture


def marker_of(folder):
    return json.loads((folder / MARKER).read_text())["id"]


def test_job_is_kept_while_the_volume_of_its_archive_is_not_mounted(cluster, start_run, tmp_path):  # noqa: F811
    first = start_run(*options(cluster.write_policy(grace=0)))
    cluster.finish("one")
    cluster.await_stored("one")
    cluster.await_gone("one", 60)
    expected = marker_of(cluster.folder)
    first.stop()

    cluster.folder.rename(tmp_path / "unmounted")
    cluster.finish("two")
    start_run(*options(cluster.policy))  # it has never seen the volume; its sweep at the start writes the Event
    cluster.api.wait("the Event", lambda: any(expected in one for one in cluster.events("NotArchived")), 90)
    assert cluster.job("two") is not None
    assert not cluster.folder.exists()

    (tmp_path / "unmounted").rename(cluster.folder)
    cluster.annotate("two", again="2")
    cluster.await_stored("two")
    cluster.await_gone("two", 60)
    assert marker_of(cluster.folder) == expected


def test_other_bucket_is_used_only_once_it_is_adopted(cluster, start_run, s3, server, monkeypatch):  # noqa: F811
    """The policy names another bucket, which is an archive of its own."""
    buckets = [f"{cluster.namespace}-{number}" for number in range(2)]
    urls = [s3.url("present", "jobs").replace("s3://present/", f"s3://{bucket}/") for bucket in buckets]
    policies = [cluster.folder.parent / f"policy-{number}.yaml" for number in range(2)]
    for bucket, url, path in zip(buckets, urls, policies, strict=True):
        (s3.root / bucket).mkdir()
        shutil.copy(cluster.write_policy(f'{{url: "{url}"}}', grace=0), path)

    def archive(word, policy, *flags):
        return run_command(server.kubeconfig, "archive", word, "-n", cluster.namespace, "--policy", str(policy), *flags)

    assert archive("init", policies[0]).returncode == 0
    first = marker_of(s3.root / buckets[0] / "jobs")
    refused = archive("init", policies[1])
    assert refused.returncode == 1
    assert f"archive main is {first}" in refused.stderr
    second = marker_of(s3.root / buckets[1] / "jobs")

    commands = (("ls", "-A"), ("verify", "-A"), ("restore", "job/done", "-n", cluster.namespace))
    for words in (*commands, ("prune", "--yes", "--unchecked", "--all", "--keep", "1s")):
        with monkeypatch.context() as known:
            known.setenv("TTL_NAMESPACE", cluster.namespace)
            one = run_command(server.kubeconfig, "archive", *words, "--policy", str(policies[1]))
        assert one.returncode == 1, one
        assert f"is archive {second}, expected archive {first}" in " ".join(one.stderr.split())

    run = start_run(*options(policies[1]), "-v")
    cluster.finish("done")
    cluster.api.wait("the reason", lambda: f"is archive {second}, expected archive {first}" in run.text)
    assert cluster.job("done") is not None
    assert not (s3.root / buckets[1] / "jobs/v1").exists()

    adopted = archive("adopt", policies[1], "--yes")
    assert f"archive main is {second} instead of {first}" in adopted.stdout, adopted
    cluster.annotate("done", again="1")
    cluster.await_gone("done", 60)
    assert (s3.root / buckets[1] / "jobs/v1").exists()
