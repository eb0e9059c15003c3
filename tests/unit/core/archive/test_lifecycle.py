"""Lifecycle rules, as the tools of each store read them."""

import json
from datetime import timedelta
from xml.etree import ElementTree as ET

import pytest

from shared.core.archive.destination import parse_destination
from shared.core.archive.prune import lifecycle_command, lifecycle_rule

S3, GCS, AZURE = (parse_destination(url) for url in ("s3://b/pre/fix", "gs://b/pre/fix", "az://c/pre/fix?account=me"))
DAYS = timedelta(days=90)


def test_rule_of_s3_covers_only_the_prefix():
    (rule,) = json.loads(lifecycle_rule(S3, DAYS))["Rules"]
    assert rule["Status"] == "Enabled"
    assert rule["Filter"] == {"Prefix": "pre/fix/v1/"}
    assert rule["Expiration"] == {"Days": 90}
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert lifecycle_command(S3, "l.json").startswith("aws s3api put-bucket-lifecycle-configuration --bucket b ")


def test_rule_of_s3_is_also_written_as_xml():
    root = ET.fromstring(lifecycle_rule(parse_destination("s3://b/a&b"), DAYS, "xml"))
    name = "{http://s3.amazonaws.com/doc/2006-03-01/}"
    rule = root.find(f"{name}Rule")
    assert rule is not None
    assert rule.findtext(f"{name}Expiration/{name}Days") == "90"
    assert rule.findtext(f"{name}Filter/{name}Prefix") == "a&b/v1/"


def test_rule_of_google_cloud_storage_covers_only_the_prefix():
    delete, abort = json.loads(lifecycle_rule(GCS, DAYS))["rule"]
    assert delete == {"action": {"type": "Delete"}, "condition": {"age": 90, "matchesPrefix": ["pre/fix/v1/"]}}
    assert abort["action"] == {"type": "AbortIncompleteMultipartUpload"}
    assert lifecycle_command(GCS, "l.json") == "gcloud storage buckets update gs://b --lifecycle-file=l.json"


def test_rule_of_azure_covers_only_the_prefix_in_the_container():
    (rule,) = json.loads(lifecycle_rule(AZURE, DAYS))["rules"]
    assert rule["definition"]["filters"]["prefixMatch"] == ["c/pre/fix/v1/"]
    assert rule["definition"]["actions"]["baseBlob"]["delete"] == {"daysAfterCreationGreaterThan": 90}
    assert "--account-name me " in lifecycle_command(AZURE, "l.json")


@pytest.mark.parametrize(("hours", "days"), [(1, 1), (24, 1), (25, 2), (48, 2)])
def test_days_are_rounded_up(hours, days):
    (rule,) = json.loads(lifecycle_rule(S3, timedelta(hours=hours)))["Rules"]
    assert rule["Expiration"]["Days"] == days


def test_folder_has_no_lifecycle_rules():
    folder = parse_destination("file:///var/x")
    with pytest.raises(ValueError, match="run `archive prune`"):
        lifecycle_rule(folder, DAYS)
    with pytest.raises(ValueError, match="run `archive prune`"):
        lifecycle_command(folder, "x")
    with pytest.raises(ValueError, match="expected json, got 'xml'"):
        lifecycle_rule(GCS, DAYS, "xml")
