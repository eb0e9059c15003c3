"""An embedded Kubernetes API server in memory, for the demo and the tests: it implements what this project uses.

`store` is the API without HTTP, for simulations; `app` serves it on a port of this machine. The contract tests compare
its behaviour with a real kube-apiserver. Not implemented:

- admission and schemas: an object's spec is not validated, defaulted or pruned
- authentication
- server-side apply, and the strategic merge of lists: a strategic patch is a merge patch
- conversion: the versions of a custom resource differ only in their apiVersion; an Event is in one group only
- protobuf, except for what kubectl's short commands send
- kubelets: a deleted Pod without finalizers is gone at once, even if it runs
"""

from shared.devserver.apiserver.app import EmbeddedApiServer, Intercept, serve, write_kubeconfig
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.listing import Change
from shared.devserver.apiserver.resources import Object, Registry, Resource
from shared.devserver.apiserver.store import ListPage, Query, Store, WriteOptions

__all__ = [
    "Change",
    "DeleteOptions",
    "EmbeddedApiServer",
    "Intercept",
    "ListPage",
    "Object",
    "Query",
    "Registry",
    "Resource",
    "StatusError",
    "Store",
    "WriteOptions",
    "serve",
    "write_kubeconfig",
]
