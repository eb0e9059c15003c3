"""Paths of fields in a carrier rule: `spec.tls[*].secretName`, `spec.replicaSpecs.*.template.spec`.

A path starts at the root of the object. `[*]` stands for each element of a list, and `*` for each value of a mapping. A
key with other characters is quoted: `metadata.annotations["example.com/secret"]`.
"""

import re
from enum import Enum
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError


class Many(Enum):
    """A step of a path that leads to several values."""

    ELEMENTS = "[*]"
    VALUES = "*"


Step = str | Many

_KEY = r"[A-Za-z_][\w-]*"
_STEP = re.compile(rf'\.?(?P<key>{_KEY})|\.?(?P<values>\*)|(?P<elements>\[\*\])|\["(?P<quoted>[^"]+)"\]', re.ASCII)
_PATH = re.compile(rf'({_KEY}|\*)(\.({_KEY}|\*)|\[\*\]|\["[^"]+"\])*', re.ASCII)
_PLAIN = re.compile(_KEY, re.ASCII)

PATH_CHARACTERS_MAX = 500


def _check_path(text: str) -> str:
    if len(text) > PATH_CHARACTERS_MAX or not _PATH.fullmatch(text):
        raise PydanticCustomError(
            "path", 'expected a path such as spec.tls[*].secretName, spec.*.template or metadata.annotations["a/b"]'
        )
    return text


FieldPath = Annotated[str, AfterValidator(_check_path)]
"""A path of a carrier rule."""


def parse_path(path: str) -> tuple[Step, ...]:
    """The steps of a valid path."""
    steps: list[Step] = []
    for found in _STEP.finditer(path):
        if found["values"]:
            steps.append(Many.VALUES)
        elif found["elements"]:
            steps.append(Many.ELEMENTS)
        else:
            steps.append(found["key"] or found["quoted"])
    return tuple(steps)


def format_path(keys: tuple[str | int, ...]) -> str:
    """The text of a path with the keys and places that an object has: `spec.tls[0].secretName`."""
    text = ""
    for key in keys:
        if isinstance(key, int):
            text += f"[{key}]"
        elif _PLAIN.fullmatch(key):
            text += f".{key}"
        else:
            text += f'["{key}"]'
    return text.removeprefix(".")
