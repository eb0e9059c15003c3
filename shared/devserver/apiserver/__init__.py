"""An embedded Kubernetes API server: faithful where this project looks, in memory, for the demo and the tests.

`store` is the API without HTTP, for simulations; `app` serves it; `serve` runs it on a port of this machine. What the
store does is what the contract tests saw a real kube-apiserver do. Knowingly left out: admission and schemas (an
object's spec is not validated, defaulted or pruned), authentication, server-side apply, strategic merging of lists
(a strategic patch is a merge patch), conversion (versions of a custom resource differ in their apiVersion only),
protobuf beyond what kubectl's short commands send, and kubelets: a deleted Pod without finalizers is gone at once,
running or not.
"""

from shared.devserver.apiserver.app import ApiServer, Intercept
from shared.devserver.apiserver.deletion import DeleteOptions
from shared.devserver.apiserver.errors import StatusError
from shared.devserver.apiserver.resources import Object, Registry, Resource
from shared.devserver.apiserver.serve import serve, write_kubeconfig
from shared.devserver.apiserver.store import Page, Query, Store, WriteOptions
from shared.devserver.apiserver.table import Change

__all__ = [
    "ApiServer",
    "Change",
    "DeleteOptions",
    "Intercept",
    "Object",
    "Page",
    "Query",
    "Registry",
    "Resource",
    "StatusError",
    "Store",
    "WriteOptions",
    "serve",
    "write_kubeconfig",
]
