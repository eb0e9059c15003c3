"""Find the words of a text that may be the names of Secrets and ConfigMaps.

`prod/app-tls`, `app-tls:key`, `--cert=app-tls`, `{"secretName": "app-tls"}` and `kubectl get secret app-tls` all have
the word `app-tls`. `app-tls.key` has it as well, because a key may follow a name after a dot.

A name without `-`, `.` and digits may be a plain word, such as `config`. A text that may be prose has it as a name only
where a value stands: after `=`, `:` or `/`, in quotes, in a list, or alone. In a path (/etc/config) and in a host name
(config.example.com) it is no name, unless the path says so (/secrets/config). In a command, each word is a name, and so
is each part of a path and of a host name: see `mentions`.

A container has variables whose values may be in the container. The kubelet puts the value of a variable in the place of
`$(NAME)` in the variables after it, and in the command and the arguments. A shell does the same with `$NAME` and
`${NAME}`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import pairwise
from typing import Any

from shared.core.references.reference import ANY, OBJECT_NAME_CHARACTERS_MAX, TEMPLATE_IN_TEXT
from shared.core.values.objects import get_in, get_text

Words = tuple[AbstractSet[str], AbstractSet[str]]
"""All words of a text, with the parts of paths and host names; and those that are names even if the text is prose."""

LITERALS_MIN = 1
"""The fewest letters and digits of a template that is searched: too many texts have a mere `$(NAME)`."""

MANY_LABELS = 5
"""A word of so many parts with dots between them has too many names in it: `many_labels_of` has it as a whole."""

PORTION_CHARACTERS = 20_000
"""The most characters of a text that are read at once, which takes some milliseconds."""

_OVERLAP_CHARACTERS = 1_000
_CACHED_CHARACTERS = 120
_CACHED_DOTS = 6
TEMPLATES_IN_TEMPLATE_MAX = 20
"""How deep templates are in one another. With deeper ones, a text may have any name."""

BRACED_CHARACTERS_MAX = 300
"""The longest word of a shell whose braces are read one by one, as in `${TEAM}-{tls,key}`: a name is shorter."""

UNKNOWN_NAME = "\1"
"""A text that stands for any name: a text that is not known."""

_WORD = re.compile(r"[A-Za-z0-9./-]+")
_MANY_LABELS = re.compile(rf"(?<![A-Za-z0-9-])[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+){{{MANY_LABELS - 1},}}")
_ESCAPE = re.compile(r"(?<!\\)\\+(?:[nrt]|u[0-9A-Fa-f]{4})|%[0-9A-Fa-f]{2}")
# Each quantifier is bounded, so that no text takes quadratic time.
_VALUE = re.compile(
    r"""(?:^|[:=,\[({"'`/]|^[ \t]{0,200}-)[ \t]{0,40}([a-z]{1,253})(?=[ \t]{0,4}(?:$|[,;:})\]"'`#]))""", re.MULTILINE
)
_PAIR = re.compile(r"[:=/]([a-z]{1,253})(?=[\s&|]|$)")
_QUOTES = re.compile(r"""(?<=[\w.)}-])[\\"']+(?=[\w.${-])""", re.ASCII)
_OUTPUT = re.compile(r"`[^`]+`")
_BRACES = re.compile(r"\{[^{}\s]{0,200}(?:,|\.\.)[^{}\s]{0,200}\}")  # {red,blue}-db and db-{1..3} of a shell
_JOINS = re.compile(r"""\\\n|\$(?=["'])""")  # a line that goes on, and the mark before quotes with escapes
_WITHIN = re.compile(r"\$\{\w+\}|\$\(\w+\)|\$\w+", re.ASCII)
_HOLE = "\0"
_PIECE = re.compile(r"[A-Za-z0-9./\0-]+")
_KINDS_IN_PATHS = ("secret", "configmap", "namespace")
_MARKS = frozenset("-.0123456789")


def words_of(text: str) -> Words:
    """Return the words of a text."""
    return _cached_words(text) if _is_small(text) else _read(text)


def _is_small(text: str) -> bool:
    return len(text) <= _CACHED_CHARACTERS and text.count(".") <= _CACHED_DOTS


def portions_of(text: str) -> Iterator[str]:
    """Yield a long text in portions that overlap, so that each word, with what is around it, is whole in one of them.

    A word that is cut at the edge of a portion may look like another one: so more may seem used, and never less.
    """
    yield text[:PORTION_CHARACTERS]
    step = PORTION_CHARACTERS - _OVERLAP_CHARACTERS
    for start in range(step, len(text) - _OVERLAP_CHARACTERS, step):
        yield text[start : start + PORTION_CHARACTERS]


def pairs_of(text: str) -> Iterable[tuple[str, str]]:
    """Return each two parts of a path that may be a namespace and a name: `prod/app-tls`, `prod/secrets/app-tls`."""
    if "/" not in text:
        return ()
    return _cached_pairs(text) if _is_small(text) else _read_pairs(text)


@lru_cache(maxsize=8_192)
def _cached_pairs(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_read_pairs(text))


def _read_pairs(text: str) -> Iterator[tuple[str, str]]:
    for form in (text, *_forms_of(text)):
        for word in _WORD.findall(form):
            parts = [part.strip("-.") for part in word.split("/")]
            yield from pairwise(parts)
            apart = zip(parts, parts[1:], parts[2:], strict=False)
            yield from ((place, name) for place, kind, name in apart if kind.lower().startswith(_KINDS_IN_PATHS))


def templates_of(text: str, *, is_command: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the namespace and the name of each word with a template, in which `*` stands for any text.

    The namespace is empty if the word has none. `prod/${env}-tls` is the name `*-tls` in the namespace `prod`. In a
    longer path, each part is a name. A key may follow a name after a dot: `${env}-tls.key` has the name `*-tls` too.

    Args:
        text: The text.
        is_command: Whether a shell may read it, which puts the output of a command in the place of `command`, and a
            word for each text in braces.
    """
    if UNKNOWN_NAME in text:
        yield "", ANY
    is_shell = is_command and ("`" in text or "{" in text)
    others = [_OUTPUT.sub("$(o)", one) for one in _forms_of_braces(text)] if is_shell else []
    for one in dict.fromkeys((text, *others)):
        if _may_have_templates(one):
            yield from _cached_templates(one) if _is_small(one) else _read_templates(one)


def _forms_of_braces(text: str) -> Iterator[str]:
    """Yield a text of a shell with each word of its braces, and with a template for all braces.

    Templates alone do not suffice: `${team}-{tls,key}` would be a text without a letter.
    """
    words = [one for one in text.split() if "$" in one and len(one) <= BRACED_CHARACTERS_MAX]
    yield "\n".join(
        word[: found.start()] + choice + word[found.end() :]
        for word in words
        for found in _BRACES.finditer(word)
        for choice in found[0][1:-1].split(",")
    )
    for _ in range(TEMPLATES_IN_TEMPLATE_MAX):  # from the innermost on
        text, count = _BRACES.subn("$(o)", text)
        if not count:
            break
    yield text


@lru_cache(maxsize=8_192)
def _cached_templates(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_read_templates(text))


def _read_templates(text: str) -> Iterator[tuple[str, str]]:
    pieces: dict[str, None] = {}
    escaped = [_ESCAPE.sub("\n", text)] if "\\" in text or "%" in text else []
    joined = _JOINS.sub("", text)
    for one in dict.fromkeys((text, joined, _QUOTES.sub("", joined), *escaped)):
        inner = _WITHIN.sub(_HOLE, one)
        pieces |= dict.fromkeys(_PIECE.findall(inner))
        for stage in _stages(one, _HOLE):
            if stage is None:
                yield "", ANY
            else:
                pieces |= dict.fromkeys(_PIECE.findall(stage))
    for piece in pieces:
        segments = piece.split("/")
        for place, segment in enumerate(segments):
            before = segments[0] if len(segments) == place + 1 == 2 else ""  # noqa: PLR2004 - NAMESPACE/NAME
            yield from ((before.replace(_HOLE, ANY), name) for name in _patterns_of(segment.strip("-.")))


def _patterns_of(word: str) -> Iterator[str]:
    """Yield the patterns of a word with holes: the word, it without a key after a dot, and its part with the hole."""
    before, hole, after = word.partition(_HOLE)
    if not hole:
        return
    dots = [place for place, one in enumerate(after) if one == "."][: MANY_LABELS - 1]
    ends = [hole + after[:place] for place in (*dots, len(after))]
    if after.count(".") >= MANY_LABELS:
        ends.append(hole + after[: dots[-1]] + hole)
    for one in dict.fromkeys((word, *(start + end for end in ends for start in (before, before.rpartition(".")[2])))):
        literals = one.replace(_HOLE, "")
        if sum(map(str.isalnum, literals)) >= LITERALS_MIN and len(literals) <= OBJECT_NAME_CHARACTERS_MAX:
            yield one.replace(_HOLE, ANY)


def many_labels_of(text: str) -> AbstractSet[str]:
    """The words of a text that have many parts with dots between them; a name may be some of these parts."""
    if text.count(".") < MANY_LABELS - 1:
        return frozenset()
    return {word for form in (text, *_forms_of(text)) for word in _MANY_LABELS.findall(form)}


@lru_cache(maxsize=8_192)
def _cached_words(text: str) -> Words:
    return _read(text)


def _read(text: str) -> Words:
    words, values = _split(text)
    for other in _forms_of(text):
        more, more_values = _split(other)
        words, values = words | more, values | more_values
    return words, values


def _forms_of(text: str) -> Iterator[str]:
    """Yield the other forms of a text in which a name may stand: without escapes, and without templates."""
    if "\\" in text or "%" in text:
        yield _ESCAPE.sub("\n", text)
    if _may_have_templates(text):
        yield from (one for one in _stages(text, "0") if one is not None)
    joined = _JOINS.sub("", text)
    if joined != text:
        yield joined
    if _QUOTES.search(joined):
        yield _QUOTES.sub("", joined)


def _stages(text: str, filling: str) -> Iterator[str | None]:
    """Put a text in the place of each template, from the innermost on; None at last if they are too deep."""
    for _ in range(TEMPLATES_IN_TEMPLATE_MAX):
        filled = TEMPLATE_IN_TEXT.sub(filling, text)
        if filled == text:
            return
        yield filled
        text = filled
    yield None


def _may_have_templates(text: str) -> bool:
    return "$" in text or "{{" in text


def _split(text: str) -> Words:
    words: set[str] = set()
    names: set[str] = set()
    for word in set(_WORD.findall(text)):
        for part, is_name in _parts_of(word):
            words.add(part)
            if is_name:
                names.add(part)
    if len(text.split(maxsplit=1)) <= 1:
        return words, names
    values = {*_VALUE.findall(text), *_PAIR.findall(text)}
    return words, {word for word in names if word in values or not _MARKS.isdisjoint(word)}


def _parts_of(word: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a word (a path, a host name, or NAMESPACE/NAME), and whether each may be a name."""
    segments = word.removeprefix("//").split("/")  # the host of a URL is no directory
    is_path = len(segments) > 2 or not segments[0]  # noqa: PLR2004 - NAMESPACE/NAME is none
    for segment in segments:
        name = segment.strip("-.")
        yield name, not is_path or not _MARKS.isdisjoint(name)
        if "." in name:
            yield from _parts_of_host(name)
        is_path = is_path and not any(kind in name.lower() for kind in _KINDS_IN_PATHS)


def _parts_of_host(name: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text with dots, such as the Secret and its key in `app-secret.password`."""
    labels = name.split(".")
    for length in range(1, len(labels) + 1 if len(labels) < MANY_LABELS else 2):
        for start in range(len(labels) - length + 1):
            part = ".".join(labels[start : start + length]).strip("-")
            yield part, any(mark in part for mark in "-0123456789")


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
