"""The check for installations in other namespaces."""

import asyncio

from shared.doctor.activity import check_other_installations
from shared.doctor.findings import Level
from shared.errors import TryLaterError
from tests.unit.doctor.test_doctor_guard import NAMESPACE, PLACE, Answer


class Server:
    """Answers the LIST of ServiceAccounts."""

    def __init__(self, *accounts, error=None):
        self.items = [{"metadata": {"namespace": place, "name": name}} for place, name in accounts]
        self.error, self.paths = error, []

    async def request(self, _method, path, **_options):
        self.paths.append(path)
        if self.error:
            raise self.error
        return Answer({"items": self.items})


def check(server):
    return asyncio.run(check_other_installations(server, PLACE))


def test_installation_alone_in_its_cluster_is_no_finding():
    server = Server((NAMESPACE, "expire"), (NAMESPACE, "sweep"), ("elsewhere", "ui"))
    assert check(server) == []
    assert "labelSelector=app.kubernetes.io%2Fname%3Dttl-after-finished" in server.paths[0]


def test_other_installations_are_named_once_each():
    (finding,) = check(Server((NAMESPACE, "expire"), ("blue", "expire"), ("blue", "sweep"), ("red", "standalone")))
    assert finding.level is Level.WARN
    assert finding.detail.startswith("in namespace blue, red: each deletes by its own policy")
    assert "get serviceaccounts" in finding.fix


def test_accounts_that_cannot_be_listed_are_unknown():
    (finding,) = check(Server(error=TryLaterError("busy")))
    assert (finding.level, "busy" in finding.detail) == (Level.WARN, True)
