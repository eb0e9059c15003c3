"""Where an installation is, its default names, and the commands with which its operator changes it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from shared.safeguards.state_schema import HOME

__all__ = ["HOME", "LEASE", "RUN"]

RUN = "default"
"""The default namespace of the Lease of `run`."""

LEASE = "ttl-after-finished"
"""The name of the Lease of `run` and of the Deployment `standalone`."""


_NONE: Mapping[str, str] = MappingProxyType({})
_COMPONENT = re.compile(r"components/(.+)/rbac\.yaml")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the installation is, and how its operator reaches it: all that a command needs so that you can paste it.

    Attributes:
        namespace: The namespace of the installation.
        manifests: The folder `knative` that is shipped with this program.
        overlay: The folder that was applied; empty if the operator did not name it.
        shipped: The shipped overlay that fits the installation.
        options: The options of kubectl that select the cluster.
        is_customized: Whether the installation has more than a shipped overlay. Applying that overlay would undo it.
        mounted_kinds: The names of the kinds whose rules are mounted, not shipped.
        release: The Helm release that made the installation; empty if it was not Helm.
    """

    namespace: str
    manifests: str
    overlay: str = ""
    shipped: str = "knative"
    options: tuple[str, ...] = ()
    is_customized: bool = False
    mounted_kinds: frozenset[str] = frozenset()
    release: str = ""

    @property
    def kubectl(self) -> str:
        """`kubectl` with the options that select the cluster."""
        return shlex.join(("kubectl", *self.options))

    def command(self, *words: str) -> str:
        """Return a kubectl command in the namespace of the installation."""
        return f"{self.kubectl} -n {self.namespace} {shlex.join(words)}"

    def apply_files(self, *paths: str) -> str:
        """Return the command that applies some of the shipped files; only for cluster-scoped objects."""
        if self.release:
            return self._upgrade([match[1] for path in paths if (match := _COMPONENT.fullmatch(path))])
        return " ".join([f"{self.kubectl} apply", *(f"-f {shlex.quote(f'{self.manifests}/{path}')}" for path in paths)])

    def join(self, kind: str, *, with_source: bool = False) -> str:
        """Return the command that makes and applies the manifests of a kind that has no shipped components.

        Args:
            kind: The name of the kind, such as `workflows.argoproj.io`.
            with_source: Whether to make its ApiServerSource as well.
        """
        words = ["kubectl", "ttl", "kinds", "manifests", kind]
        words += ["--source=apiserver", f"--namespace={self.namespace}"] if with_source else []
        words += ["--kinds-dir=YOUR_RULES"] if kind in self.mounted_kinds else []
        return f"{shlex.join(words)} | {self.kubectl} apply -f -"

    def guard(self, kinds: Sequence[str], user: str = "") -> str:
        """Return the command that makes and applies the delete guard of some kinds.

        Args:
            kinds: The names of the kinds, such as `workflows.argoproj.io`.
            user: Another user that the guard is to bind.
        """
        words = ["kubectl", "ttl", "kinds", "manifests", *kinds, "--only=guard", f"--namespace={self.namespace}"]
        words += [f"--user={user}"] if user else []
        words += ["--kinds-dir=YOUR_RULES"] if self.mounted_kinds & {*kinds} else []
        return f"{shlex.join(words)} | {self.kubectl} apply -f -"

    def apply(
        self, note: str = "", *, shipped: str = "", components: Sequence[str] = (), settings: Mapping[str, str] = _NONE
    ) -> str:
        """Return the command that applies the overlay again.

        Args:
            note: What to do before, or to the overlay; it becomes a comment behind the command.
            shipped: The overlay to apply if the operator did not name one and nothing is customized.
            components: The components to add, in this order: options for Helm instead of the note, else a comment if
                there is no note.
            settings: The settings to change: options for Helm, else a comment.
        """
        if self.release and not self.overlay:
            return self._upgrade(components, settings, note="" if components else note)
        folder, hint = self.overlay, ""
        if not folder and self.is_customized:
            folder, hint = "YOUR_OVERLAY", "the overlay that you installed (--overlay)"
        elif not folder:
            folder = f"{self.manifests}/overlays/{shipped or self.shipped}"
            hint = "or the overlay that you installed (--overlay)"
        if components and not note:
            note = f"after you add {', then '.join(f'components/{one}' for one in components)} to your overlay"
        changed = ", ".join(f"{name}={value}" for name, value in settings.items())
        hint = ", ".join(filter(None, [f"with {changed}" if changed else "", note])) or hint
        return f"{self.kubectl} apply -k {shlex.quote(folder)}" + (f"    # {hint}" if hint else "")

    def apply_component(self, component: str) -> str:
        """Return the command that applies a component of cluster-scoped objects, which may be applied alone."""
        if self.release or self.overlay:
            return self.apply(components=[component])
        folder = shlex.quote(f"{self.manifests}/components/{component}")
        return f"{self.kubectl} apply -k {folder}    # or your overlay, if it contains this component"

    def _upgrade(self, components: Sequence[str], settings: Mapping[str, str] = _NONE, note: str = "") -> str:
        """Return the command that upgrades the release, with components to add and settings to change."""
        options = (one.replace("--context=", "--kube-context=") for one in self.options)
        words = ["helm", *options, "upgrade", self.release, "CHART", f"--namespace={self.namespace}"]
        words += ["--reset-then-reuse-values", *(f"--set=components.{one}=true" for one in components)]
        words += [f"--set-string=settings.{name}={value}" for name, value in settings.items()]
        hints = [*filter(None, [note]), "CHART is the chart of this version"]
        return f"{shlex.join(words)}    # {'; '.join(hints)}"
