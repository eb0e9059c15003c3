"""Find the Secrets of Azure's CSI drivers for files and blobs, whose names are made of the storage account's name.

azurefile-csi-driver `pkg/azurefile/azurefile.go` and blob-csi-driver `pkg/blob/blob.go`: the account is the attribute
`storageAccount`, or the second part of the volumeHandle `GROUP#ACCOUNT#SHARE#...`. The namespace is the attribute
`secretNamespace`, and for some requests the fifth or sixth part of the volumeHandle. Without the attribute, it may be
that of the claim, that of the Pod, or `default`, so any namespace counts. For an inline volume, it is that of the Pod.
The drivers do not distinguish upper and lower case in the names of attributes. A name in `secretName` is a mention: see
`mentions`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from shared.core.objects import get_text
from shared.core.references.field_values import Keys, Origin
from shared.core.references.reference import ANY, Reference, TargetKind

_NAME = "azure-storage-account-{}-secret"
_ACCOUNTS = ("storageaccount", "storageaccountname")
_ACCOUNT, _NAMESPACES = 1, slice(4, 6)
_PARTS_MIN = 3


def read_azure_volume(origin: Origin, volume: Any, keys: Keys) -> Iterator[Reference]:
    """The references by a volume to the Secret with the key of its storage account. Total.

    Args:
        origin: The object that has the volume.
        volume: The CSI volume, or the parameters of a StorageClass; a text is a volumeHandle.
        keys: Where it is.
    """
    if isinstance(volume, str):
        volume = {"volumeHandle": volume}
    attributes = volume.get("volumeAttributes", volume) if isinstance(volume, dict) else volume
    given = attributes if isinstance(attributes, dict) else {}
    values = {str(key).lower(): value for key, value in given.items()}
    named = [values[key] for key in _ACCOUNTS if values.get(key)]
    if not isinstance(attributes, dict | None) or not all(isinstance(one, str) for one in named):
        yield from origin.unreadable((TargetKind.SECRET,), keys, volume, crosses=origin.home == ANY)
        return
    parts = get_text(volume, "volumeHandle").split("#")
    named += [parts[_ACCOUNT]] if len(parts) >= _PARTS_MIN else []
    for namespace in _read_namespaces(values.get("secretnamespace"), parts, origin.home):
        for account in dict.fromkeys(filter(None, named)):
            yield origin.refer(TargetKind.SECRET, namespace, _NAME.format(account), keys)


def _read_namespaces(given: Any, parts: list[str], home: str) -> Iterable[str]:
    if home != ANY:
        return (home,)
    if not isinstance(given, str) or not given:
        return (ANY,)
    return dict.fromkeys((given, *filter(None, parts[_NAMESPACES])))
