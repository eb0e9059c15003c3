"""Kubernetes objects from a YAML file, as kubectl would read them."""

from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import yaml

from shared.errors import TtlError


class _KubernetesLoader(yaml.SafeLoader):
    """YAML as Kubernetes means it: a time without quotes is text, as it is in JSON."""


_KubernetesLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_documents(stream: IO[str], name: str) -> Iterator[dict[str, Any]]:
    """Every object of every document, those inside Lists too; empty documents are passed over.

    Args:
        stream: The YAML or JSON.
        name: Of the file, for messages.

    Raises:
        TtlError: It is no YAML, or a document is no object; the message names the file and the document.
    """
    try:
        for number, document in enumerate(yaml.load_all(stream, Loader=_KubernetesLoader), start=1):
            if document is not None:
                yield from _objects(document, f"{name}, document {number}")
    except yaml.YAMLError as error:
        raise TtlError(f"{name}: expected YAML, got {' '.join(str(error).split())}") from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise TtlError(f"{name}: expected YAML, got {error}") from None


def _objects(document: Any, place: str) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise TtlError(f"{place}: expected a Kubernetes object, got {type(document).__name__}")
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for number, item in enumerate(items, start=1):
            yield from _objects(item, f"{place}, item {number}")
    else:
        yield document


def open_file(path: str) -> IO[str]:
    """A file to read text from.

    Raises:
        TtlError: It cannot be opened.
    """
    try:
        return Path(path).open(encoding="utf-8")
    except OSError as error:
        raise TtlError(f"{path}: {error.strerror}") from None
