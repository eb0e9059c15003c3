"""The variables of a container whose values are in the container, and texts in which they stand.

The kubelet puts the value of a variable in the place of `$(NAME)` in the variables after it, and in the command and the
arguments. A shell does the same with `$NAME` and `${NAME}`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from shared.core.references.words import UNKNOWN_NAME
from shared.core.values.objects import get_in, get_text

GROWTH_CHARACTERS_MAX = 100_000
"""How much longer the values make the texts of one container. With more, the container has a text with any name."""

_OF_KUBELET = re.compile(r"\$\(([A-Za-z_][\w.-]*)\)", re.ASCII)
_OF_SHELL = re.compile(r"\$(?:\(([A-Za-z_][\w.-]*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_EXPANDED = ("command", "args", "script", "source")
_HANDLERS = (
    ("lifecycle", "postStart"),
    ("lifecycle", "preStop"),
    ("livenessProbe",),
    ("readinessProbe",),
    ("startupProbe",),
)
"""Where a container has commands beside its own."""


def variables_of(container: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The variables of a container that have the right shape."""
    env = container.get("env")
    return [one for one in env if isinstance(one, dict)] if isinstance(env, list) else []


def text_of(value: Any) -> str:
    """The value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


class Variables:
    """The variables of a container, as the kubelet expands them; of two with one name, the last counts.

    Attributes:
        values: Their values.
        in_order: The value of each variable, as it is for the kubelet at its place.
        is_cut: Whether a value was left out, since the texts became too long.

    Args:
        variables: The variables, in their order.
        home: The namespace of the container.
    """

    def __init__(self, variables: Sequence[Mapping[str, Any]], home: str) -> None:
        self._room = GROWTH_CHARACTERS_MAX
        self._home = home
        self.is_cut = False
        self.values: dict[str, str | None] = {}
        self.in_order: list[str | None] = []
        for one in variables:
            self.in_order.append(self._read(one))
            if name := text_of(one.get("name")):
                self.values[name] = self.in_order[-1]

    def _read(self, variable: Mapping[str, Any]) -> str | None:
        source, value = variable.get("valueFrom"), variable.get("value")
        if source is not None:
            return self._home if get_text(source, "fieldRef.fieldPath") == "metadata.namespace" else None
        if value is None:
            return ""
        return self._expand(value, _OF_KUBELET) if isinstance(value, str) else None

    def expand(self, text: Any) -> str | None:
        """A text with the values that are known; None if it has none of them."""
        if not isinstance(text, str) or "$" not in text:
            return None
        expanded = self._expand(text, _OF_SHELL)
        return expanded if expanded != text else None

    def _expand(self, text: str, form: re.Pattern[str]) -> str:
        return form.sub(self._value_of, text)

    def _value_of(self, found: re.Match[str]) -> str:
        value = self.values.get(next(filter(None, found.groups()), ""))
        if not value:
            return found[0]
        if len(value) > self._room:
            self.is_cut = True
            return found[0]
        self._room -= len(value)
        return value


def expanded_texts(container: Mapping[str, Any], home: str) -> dict[str, Any]:
    """The texts of a container that the values of its own variables change, in its form and as they are then.

    Args:
        container: The container; any mapping is accepted.
        home: Its namespace.

    Returns:
        Its command, arguments, script (`source` in Argo Workflows), variables, and the commands of its probes and
        lifecycle, with None for each text that does not change; without a field of which no text changes.
    """
    given = variables_of(container)
    if not given:
        return {}
    texts = {field: container[field] for field in _EXPANDED if field in container}
    handlers = {path: get_in(container, ".".join((*path, "exec", "command"))) for path in _HANDLERS}
    literals = [one.get("value") for one in given]
    every = (one for field in (literals, *texts.values(), *handlers.values()) for one in _listed(field))
    if not any("$" in one for one in every if isinstance(one, str)):
        return {}
    variables = Variables(given, home)
    found: dict[str, Any] = {}
    for field, value in texts.items():
        expanded = [variables.expand(one) for one in _listed(value)]
        if any(expanded):
            found[field] = expanded if isinstance(value, list) else expanded[0]
    for path, value in handlers.items():
        expanded = [variables.expand(one) for one in _listed(value)]
        if any(expanded):
            found.setdefault(path[0], {})[path[-1]] = {"exec": {"command": expanded}}
    for_shell = [variables.expand(one) or one for one in variables.in_order]
    changed = [{"value": one} if one != old else None for one, old in zip(for_shell, literals, strict=True)]
    if variables.is_cut:
        changed.append({"value": UNKNOWN_NAME})
    return found | ({"env": changed} if any(changed) else {})


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
