# SPDX-License-Identifier: Apache-2.0
"""The cloud's HTTP APIs as its administrator uses them."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from tools.laboratory.cloud.layout import PASSWORD, Layout
from tools.laboratory.cloud.web import Answer, call

VERSION_HEADER = "OpenStack-API-Version"
COMPUTE_VERSION = "compute 2.96"
PLACEMENT_VERSION = "placement 1.39"
TOKEN_LIFE_S = 6 * 3600
"""Keystone's tokens are valid for a day; they are renewed long before that."""


class Api:
    """Calls with a token that is requested once, stored in the data directory, and renewed when it is refused."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._lock = threading.Lock()
        self._login: dict[str, Any] = {}

    def keystone(self, method: str, path: str, body: Any = None) -> Answer:
        return self._call(method, self.layout.endpoint("keystone") + path, body, {})

    def glance(self, method: str, path: str, body: Any = None) -> Answer:
        return self._call(method, self.layout.url("glance") + path, body, {})

    def compute(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        more = {VERSION_HEADER: COMPUTE_VERSION, **(headers or {})}
        return self._call(method, self.layout.endpoint("nova-api") + path, body, more)

    def placement(self, method: str, path: str, body: Any = None) -> Answer:
        return self._call(method, self.layout.url("placement") + path, body, {VERSION_HEADER: PLACEMENT_VERSION})

    def project_id(self) -> str:
        return str(self._logged_in()["project"])

    def user_id(self) -> str:
        return str(self._logged_in()["user"])

    def _call(self, method: str, url: str, body: Any, headers: Mapping[str, str]) -> Answer:
        answer = call(method, url, body, {**headers, "X-Auth-Token": self._logged_in()["token"]})
        if answer.status == 401:
            answer = call(method, url, body, {**headers, "X-Auth-Token": self._logged_in(renew=True)["token"]})
        return answer

    def _logged_in(self, renew: bool = False) -> dict[str, Any]:
        with self._lock:
            if not renew and not self._login:
                self._login = self._load()
            if renew or self._login.get("until", 0) < time.time():
                self._login = self._log_in()
            return self._login

    def _load(self) -> dict[str, Any]:
        try:
            login: dict[str, Any] = json.loads((self.layout.run / "token").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return login

    def _log_in(self) -> dict[str, Any]:
        user = {"name": "admin", "domain": {"id": "default"}, "password": PASSWORD}
        body = {"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": "admin", "domain": {"id": "default"}}},
        }}  # fmt: skip
        answer = call("POST", self.layout.endpoint("keystone") + "/auth/tokens", body)
        token = answer.expect(201)["token"]
        login = {
            "token": answer.headers["X-Subject-Token"], "project": token["project"]["id"],
            "user": token["user"]["id"], "until": time.time() + TOKEN_LIFE_S,
        }  # fmt: skip
        (self.layout.run / "token").write_text(json.dumps(login))
        return login
