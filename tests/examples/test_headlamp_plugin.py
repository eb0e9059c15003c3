"""The example examples/headlamp-plugin, without Node.js: it reads only what the schema of `ui` has."""

import json
import re
from typing import Any

import pytest

from shared.cli.ui.app import TOKEN_HEADERS
from shared.cli.ui.overview import OVERVIEW_VERSION
from tests.builders import ROOT, not_none, read_yaml

FOLDER = ROOT / "examples" / "headlamp-plugin"
SOURCES = {file.name: file.read_text() for file in sorted((FOLDER / "src").iterdir())}
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "reference" / "schemas" / "ui.json").read_text())
DOCUMENT = "UiOverview"
DEFINITIONS: dict[str, Any] = {**SCHEMA["$defs"], DOCUMENT: SCHEMA}
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
LINES_MAX = 250


def read_interfaces() -> dict[str, dict[str, str]]:
    """The types of the fields that the plugin reads, by interface."""
    found = re.findall(r"export interface (\w+) \{\n(.*?)\n\}", SOURCES["api.ts"], re.DOTALL)
    return {name: dict(re.findall(r"  (\w+): ([^;]+);", body)) for name, body in found}


INTERFACES = read_interfaces()


def typescript_of(schema: dict[str, Any]) -> str:
    """A JSON schema as a type of TypeScript."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(map(typescript_of, schema["anyOf"]))
    if schema["type"] == "array":
        return f"{typescript_of(schema['items'])}[]"
    return PLAIN[schema["type"]]


@pytest.mark.parametrize("name", INTERFACES)
def test_each_field_that_the_plugin_reads_is_a_required_field_of_the_schema(name):
    definition = DEFINITIONS[name]
    types = {field: typescript_of(definition["properties"][field]) for field in INTERFACES[name]}
    assert types == INTERFACES[name]
    assert set(types) <= set(definition["required"])


def test_api_declares_nothing_but_interfaces():
    rest = re.sub(r"/\*\*.*?\*/|export interface \w+ \{\n.*?\n\}", "", SOURCES["api.ts"], flags=re.DOTALL)
    assert rest.split() == []
    assert DOCUMENT in INTERFACES


def test_plugin_reads_the_version_the_header_and_the_service_of_this_project():
    source = SOURCES["read.ts"]
    assert f"const VERSION = {OVERVIEW_VERSION};" in source
    (header,) = re.findall(r"TOKEN_HEADER = '([^']+)'", source)
    assert header.lower() in TOKEN_HEADERS
    assert header.lower() != "authorization"  # the API server's proxy removes it
    assert "/services/${target}/proxy/api/v1/overview`" in source
    component = ROOT / "knative" / "components" / "ui"
    (service,) = (one for one in read_yaml(component / "ui.yaml") if one["kind"] == "Service")
    (http,) = service["spec"]["ports"]
    ((patch,),) = read_yaml(component / "tls" / "service.yaml")  # it replaces the port
    assert (patch["op"], patch["path"]) == ("replace", "/spec/ports/0")
    name = service["metadata"]["name"]
    targets = [f"https:{name}:{patch['value']['name']}", f"{name}:{http['name']}"]
    assert f"const TARGETS = {targets!r};" in source
    assert service["metadata"]["namespace"] in SOURCES["FinishedObjects.tsx"]
    for target in targets:
        role = f"--resource=services/proxy --resource-name={target}\n"
        assert role in (FOLDER / "README.md").read_text()


def test_token_is_stored_nowhere_and_no_markup_is_made_of_texts():
    for name, source in SOURCES.items():
        for forbidden in (
            "localStorage",
            "sessionStorage",
            "cookie",
            "ConfigStore",
            "innerHTML",
            "InnerHTML",
            "console.",
        ):
            assert forbidden not in source, f"{name} has {forbidden}"


def test_package_pins_exact_versions_and_has_no_lock_file():
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["private"] is True
    assert "dependencies" not in package  # Headlamp gives its libraries to plugins
    for name, version in package["devDependencies"].items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), name
    assert package["scripts"]["build"] == "headlamp-plugin build"
    ignored = (FOLDER / ".gitignore").read_text().split()
    assert {"/package-lock.json", "/node_modules/", "/dist/"} <= set(ignored)


def test_each_import_is_of_the_plugin_or_of_a_library_that_headlamp_gives():
    given = {"@kinvolk/headlamp-plugin/lib", "@kinvolk/headlamp-plugin/lib/CommonComponents", "@mui/material", "react"}
    for source in SOURCES.values():
        for module in re.findall(r" from '([^']+)';", source):
            own = module.startswith("./") and {f"{module[2:]}.ts", f"{module[2:]}.tsx"} & set(SOURCES)
            assert own or module in given, module


def test_files_are_short():
    assert {name for name, source in SOURCES.items() if len(source.splitlines()) > LINES_MAX} == set()
    assert not_none(re.search(r"registerRoute", SOURCES["index.tsx"]))
