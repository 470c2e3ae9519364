# SPDX-License-Identifier: Apache-2.0
"""The paths in the data directory, the ports on loopback, and the names of databases."""

import json
import os
import secrets
from pathlib import Path

from tools.laboratory import ROOT
from tools.laboratory.cloud import ports
from tools.laboratory.cloud.ports import LOOPBACK
from tools.laboratory.errors import LabError

PASSWORD = "lab-only"  # nothing listens beyond loopback
DATABASE_USER = "cloud"
REGION = "RegionOne"

PORTS = ("mariadb", "rabbitmq", "rabbitmq-dist", "epmd", "keystone", "glance", "neutron", "placement", "nova-api")
SOCKET_PATH_MAX = 107
"""A Unix socket's path has 108 bytes with its final zero."""


def venvs() -> Path:
    """Directory of the two virtual environments `nova` and `openstack`."""
    return Path(os.environ.get("SHARED_SCHEDULER_VENVS", ROOT / ".venv")).absolute()


def cache() -> Path:
    """Directory of migrated databases."""
    return Path(os.environ.get("SHARED_SCHEDULER_CLOUD_CACHE", ROOT / ".cloud-cache")).absolute()


def default_data() -> Path:
    return Path(os.environ.get("SHARED_SCHEDULER_CLOUD", ROOT / ".cloud")).absolute()


class Layout:
    """Paths and addresses of one cloud. The constructor creates no files; `prepare()` does."""

    def __init__(self, data: Path) -> None:
        self.data = data.absolute()
        self.etc = self.data / "etc"
        self.log = self.data / "log"
        self.run = self.data / "run"
        self.state = self.data / "state"
        self.admin_sockets = self.run / "admin"
        self.mysql = self.data / "mysql"
        self.mysql_tmp = self.data / "mysql-tmp"
        self.settings_file = self.data / "cloud.json"
        self.nova = venvs() / "nova"
        self.openstack = venvs() / "openstack"
        self.ports: dict[str, int] = {}
        self.mark = ""
        self._load_identity()

    def _load_identity(self) -> None:
        path = self.data / "identity.json"
        if path.exists():
            identity = json.loads(path.read_text())
            self.ports, self.mark = identity["ports"], identity["mark"]

    def exists(self) -> bool:
        return bool(self.mark)

    def absence(self) -> str:
        """What to say if it does not exist."""
        return f"there is no cloud in {self.data}; `tools/lab cloud up` makes one"

    def prepare(self) -> None:
        """Create the directories; choose ports and the mark of our processes, once."""
        longest = self.admin_sockets / "sched32-4194304.sock"
        if len(os.fsencode(longest)) > SOCKET_PATH_MAX:
            raise LabError(f"--data {self.data}: the path is too long for Unix sockets; choose a shorter directory")
        for directory in (self.etc, self.log, self.run, self.state, self.mysql_tmp, self.data / "rabbitmq"):
            directory.mkdir(parents=True, exist_ok=True)
        if not self.exists():
            self.mark = secrets.token_hex(8)
            self.choose_ports()

    def choose_ports(self) -> None:
        """Choose free ports, beginning at a place that depends on the data directory."""
        self.ports = dict(zip(PORTS, ports.lease(self.data, len(PORTS)), strict=True))
        self._save_identity()

    def _save_identity(self) -> None:
        text = json.dumps({"ports": self.ports, "mark": self.mark}, indent=2)
        (self.data / "identity.json").write_text(text + "\n")

    def url(self, service: str, path: str = "") -> str:
        return f"http://{LOOPBACK}:{self.ports[service]}{path}"

    def endpoint(self, service: str) -> str:
        """The address of a service in the catalog."""
        return self.url(service, {"keystone": "/v3", "nova-api": "/v2.1"}.get(service, ""))

    def database_url(self, name: str) -> str:
        return f"mysql+pymysql://{DATABASE_USER}:{PASSWORD}@{LOOPBACK}:{self.ports['mariadb']}/{name}?charset=utf8mb3"

    def transport_url(self, cell: int) -> str:
        return f"rabbit://guest:guest@{LOOPBACK}:{self.ports['rabbitmq']}/{vhost(cell)}"

    def log_of(self, name: str) -> Path:
        return self.log / f"{name}.log"

    def access_log(self, name: str) -> Path:
        """One line per HTTP request of an API; see `access_log.Request`."""
        return self.log / f"{name}-access.log"

    def uwsgi_stats(self, name: str) -> Path:
        """The socket at which uwsgi describes its processes of an API."""
        return self.run / f"{name}.stats"

    def nova_conf(self, cell: int = 0) -> Path:
        """nova.conf of the API, the first cell and the schedulers (0 and 1), or of another cell."""
        return self.etc / "nova" / ("nova.conf" if cell <= 1 else f"cell{cell}.conf")

    def compute_dir(self, host: str) -> Path:
        return self.etc / "nova" / host

    def tap_socket(self, host: str) -> Path:
        return self.run / f"tap-{host}.sock"


def vhost(cell: int) -> str:
    return f"cell{cell}"


def cell_database(cell: int) -> str:
    return f"nova_cell{cell}"
