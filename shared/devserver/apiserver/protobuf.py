"""Decode the protobuf of the short forms of `kubectl create` and `kubectl auth can-i`, which send nothing else.

Only the fields that those commands set are known. An unknown field with a value is rejected, not dropped, so that the
created object has all fields of the request.
"""

import base64
from collections.abc import Iterator
from typing import Any

from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.resources import Object

_MAGIC = b"k8s\0"
_VARINT, _BYTES = 0, 2  # wire types

# Field number -> name and type: str, int, bool; a dict is a message; a list of one is repeated; "map", "binary map".
_METADATA = {1: ("name", str), 2: ("generateName", str), 3: ("namespace", str), 11: ("labels", "map"),
             12: ("annotations", "map")}  # fmt: skip
_CONTAINER = {1: ("name", str), 2: ("image", str), 3: ("command", [str]), 4: ("args", [str])}
_TEMPLATE = {1: ("metadata", _METADATA), 2: ("spec", {2: ("containers", [_CONTAINER]), 3: ("restartPolicy", str)})}
_JOB_SPEC = {1: ("parallelism", int), 2: ("completions", int), 6: ("template", _TEMPLATE), 7: ("backoffLimit", int),
             8: ("ttlSecondsAfterFinished", int)}  # fmt: skip
_JOB = {1: ("metadata", _METADATA), 2: ("spec", _JOB_SPEC)}
_ATTRIBUTE_NAMES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_ATTRIBUTES = {number: (name, str) for number, name in enumerate(_ATTRIBUTE_NAMES, 1)}
_KINDS: dict[str, Any] = {
    "ConfigMap": {1: ("metadata", _METADATA), 2: ("data", "map")},
    "CronJob": {1: ("metadata", _METADATA), 2: ("spec", {1: ("schedule", str), 5: ("jobTemplate", _JOB)})},
    "Job": _JOB,
    "Namespace": {1: ("metadata", _METADATA)},
    "Secret": {1: ("metadata", _METADATA), 2: ("data", "binary map"), 3: ("type", str)},
    "SelfSubjectAccessReview": {2: ("spec", {1: ("resourceAttributes", _ATTRIBUTES)})},
    "ServiceAccount": {1: ("metadata", _METADATA)},
}
_ENVELOPE = {1: ("type", {1: ("apiVersion", str), 2: ("kind", str)}), 2: ("raw", bytes)}


def decode_protobuf(body: bytes) -> Object:
    """Decode the object in Kubernetes' protobuf envelope.

    Raises:
        StatusError: 415, the kind or one of its fields is unknown.
    """
    try:
        envelope = _message(body.removeprefix(_MAGIC), _ENVELOPE)
        about: Object = envelope["type"]
        return about | _message(envelope.get("raw", b""), _KINDS[about["kind"]])
    except (KeyError, ValueError, IndexError) as error:
        message = "the embedded API server reads only simple objects in protobuf: create this one from a file"
        raise StatusError(415, "UnsupportedMediaType", message) from error


def _message(data: bytes, schema: dict[int, Any]) -> Object:
    message: Object = {}
    for number, value in _fields(data):
        if number in schema:
            name, kind = schema[number]
            _put(message, name, kind, value)
        elif value and (isinstance(value, int) or _message(value, {})):
            raise ValueError(number)
    return message


def _put(message: Object, name: str, kind: Any, value: int | bytes) -> None:
    if isinstance(kind, list):
        message.setdefault(name, []).append(_value(kind[0], value))
    elif kind in ("map", "binary map"):
        entry = _message(bytes(value), {1: ("key", str), 2: ("value", bytes if kind == "binary map" else str)})
        content = entry.get("value", "")
        text = base64.b64encode(content).decode() if isinstance(content, bytes) else content
        message.setdefault(name, {})[entry.get("key", "")] = text
    elif value not in (b"", {}):
        message[name] = _value(kind, value)


def _value(kind: Any, value: int | bytes) -> Any:
    if isinstance(kind, dict) and isinstance(value, bytes):
        return _message(value, kind)
    return value.decode() if kind is str and isinstance(value, bytes) else value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value, position = _varint(data, position)
        if tag & 7 == _VARINT:
            yield tag >> 3, value
        elif tag & 7 == _BYTES and position + value <= len(data):
            yield tag >> 3, data[position : position + value]
            position += value
        else:
            raise ValueError(tag)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:  # noqa: PLR2004 - the continuation bit
            return value, position
