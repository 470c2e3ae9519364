# SPDX-License-Identifier: Apache-2.0
"""What reads the records, the sockets and the pages of a machine, and what must hold after each input."""

import contextlib
import io
import json
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from shared_scheduler.cmd import manage
from shared_scheduler.daemon.admin import QUESTION_BYTES_MAX, AdminServer, Handlers
from shared_scheduler.daemon.http_server import TimedHandler
from shared_scheduler.decision.what_if import WhatIfError, what_if_of
from shared_scheduler.page.queries import PageQuestions
from shared_scheduler.page.site import POLICY, Site
from shared_scheduler.records.json_lines import JsonLines
from tools.laboratory.fuzz.mutations import TEXTS, Violated, mutated_bytes, value_like

NOW_S = 1_760_000_000.0
SERVER, HOST, REQUEST = "server-1", "cmp1", "req-1"
#: a server whose record is as it was written
GOOD = "server-9"
SCRIPT = "<script>alert(1)</script>"
#: JSON that a reader may fail on: as deep as parsers go, numbers of all sizes
DEEP = "[" * 3000 + "]" * 3000
JSON_VALUES = (DEEP, '{"at":' * 500 + "1" + "}" * 500, "NaN", "-Infinity", "1e999", "9" * 5000, '"\\ud800"', "{}")
COMMANDS = (
    ("why", SERVER), ("why", SERVER, "--format", "json"), ("why", REQUEST), ("why-not", SERVER, HOST), ("story", HOST),
    ("records", "last", "20"), ("records", "last", "20", "--reason", "no_room", "--format", "json"),
)  # fmt: skip
PAGES = ("/", "/records", "/reasons", "/why", "/host", "/find", "/api/why", "/api/why-not", "/api/records",
         "/api/story", "/api/reasons", "/api/fleet", "/api/top", "/api/schema", "/static/page.js")  # fmt: skip
VALUES = (SERVER, HOST, REQUEST, SCRIPT, "..", "%00", "nan", "inf", "1e400", "-1", "9" * 300, "%20", "", "a" * 3000,
          "%0d%0aX:1", "0", "24", "kind", "%ff")  # fmt: skip
FIELDS = ("id", "host", "q", "count", "since", "until", "hours", "last", "show", "kind", "reason")


def records() -> list[dict[str, Any]]:
    """One of each kind."""
    ids = {"scheduler": "s1", "request_id": REQUEST, "global_request_id": "", "project_id": "demo", "user_id": "u"}
    best = {"node": "n1", "host": HOST, "weight": 1.5, "epoch": 3, "sequence": 41, "shares": {"RAMWeigher": 1.5}}
    attempt = {"instance": SERVER, "node": "n1", "host": HOST, "outcome": "no_room", "detail": {"asked": 1},
               "epoch": 3, "sequence": 41, "verdict_ms": 2.5, "write_ms": None, "claim_id": ""}  # fmt: skip
    decision = {
        "kind": "decision", "at": NOW_S, **ids, "instances": [SERVER], "hosts": [HOST], "result": "no_valid_host",
        "reason": SCRIPT, "reasons": {"no_room": 6},
        "near": [{"host": HOST, "code": "no_room:VCPU", "detail": {"asked": 1, "used": 4, "capacity": 4}}],
        "asked": {"flavor": "m1", "instances": [SERVER], "forms": [{"resources": {"VCPU": 1}}], "user_id": "u"},
        "decisions": [{"index": 0, "hosts": 10, "survivors": 4, "reasons": {"no_room": 6}, "best": [best]}],
        "attempts": [attempt], "answer": [[HOST, "cmp2"]], "timings_ms": {"total": 12.3},
    }  # fmt: skip
    build = {"kind": "build", "at": NOW_S + 1, **ids, "instances": [SERVER], "hosts": [HOST], "result": "failed",
             "reason": "\x1b[2K" + SCRIPT}  # fmt: skip
    side = {"hosts": [HOST], "error": ""}
    compared = {"kind": "comparison", "at": NOW_S + 2, **ids, "instances": [SERVER], "hosts": [HOST], "reason": "",
                "result": "different", "ours": side, "stock": side, "weights": [1.0, 2.0], "rank": 2}  # fmt: skip
    node = {"kind": "node", "at": NOW_S + 3, **ids, "instances": [], "hosts": [HOST], "result": "snapshot",
            "reason": "", "epoch": 3, "sequence": 41, "increments": 7}  # fmt: skip
    return [decision, build, compared, node, {**node, "kind": "of-another-release"}]


class Store:
    """A directory of records with broken and hostile lines; it is removed with its owner."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="fuzz-"))
        self._end = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        self.path = self._directory / "records.jsonl"

    def change(self, rng: Random) -> None:
        """Other lines, some of which are records."""
        lines = [self._line(one, rng) for one in records() if rng.random() < 0.8]
        good = {**records()[1], "instances": [GOOD], "hosts": ["cmp9"]}
        lines.insert(rng.randint(0, len(lines)), json.dumps(good).encode())
        new = self._directory / "new"
        new.write_bytes(b"".join(line + b"\n" for line in lines))
        new.replace(self.path)

    def _line(self, record: dict[str, Any], rng: Random) -> bytes:
        changed: Any = record
        for _ in range(rng.choice((0, 1, 1, 2))):
            name = rng.choice(list(changed))
            changed = {**changed, name: value_like(changed[name], rng, 4)}
        text = json.dumps(changed, default=str)
        if rng.random() < 0.2:
            name = rng.choice(list(record))
            text = text.replace(f'"{name}": ', f'"{name}": {rng.choice(JSON_VALUES)}, "x": ', 1)
        return mutated_bytes(text.encode(), rng) if rng.random() < 0.2 else text.encode()


class Records:
    """Commands on broken and hostile records: no traceback, an exit code, only printable lines, and a good record among
    them is found."""

    def __init__(self, rng: Random) -> None:
        self._store = Store()

    def feed(self, rng: Random) -> bool:
        """One command."""
        self._store.change(rng)
        command = rng.choice((*COMMANDS, ("why", GOOD)))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = manage.main([*command, "--records", str(self._store.path)])
        lines = [*out.getvalue().split("\n"), *err.getvalue().split("\n")]
        if bad := [line for line in lines if not line.isprintable()]:
            raise Violated(f"a line with control characters: {bad[0]!r}")
        if code not in (0, 1, 2) or "Traceback" in err.getvalue():
            raise Violated(f"exit code {code}: {lines[-2]}")
        if command[1] == GOOD and code != 0:
            raise Violated(f"a good record is not found: {lines[-2]}")
        return code == 0


class Page:
    """The page on such records: an answer to each request, its headers, and no script of others."""

    def __init__(self, rng: Random) -> None:
        self._store = Store()
        questions = PageQuestions(JsonLines(self._store.path), None, lambda: NOW_S + 5)
        self._site = Site(questions, ("localhost",))

    def feed(self, rng: Random) -> bool:
        """One request."""
        self._store.change(rng)
        query = "&".join(f"{rng.choice(FIELDS)}={rng.choice(VALUES)}" for _ in range(rng.randrange(4)))
        path = rng.choice((*PAGES, "/static/" + rng.choice(VALUES), "/" + rng.choice(TEXTS)))
        host = rng.choice(("localhost", "localhost:8780", "evil.example", "localhost.evil.example", "", "localhost,x"))
        return _asked(self._site, path, query, host)


def _asked(site: Site, path: str, query: str, host: str) -> bool:
    told: list[Any] = []
    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": query, "HTTP_HOST": host}
    body = b"".join(site(environ, lambda status, headers: told.extend([status, dict(headers)])))
    status, headers = told
    if (status[:3] != "403") != (host.partition(":")[0] == "localhost"):
        raise Violated(f"{status} for Host {host!r}")
    if headers["Content-Security-Policy"] != POLICY or "\n" in headers.get("Location", ""):
        raise Violated(f"headers {headers}")
    if "html" in headers["Content-Type"] and SCRIPT.encode() in body:
        raise Violated(f"a script of others in {path}?{query}")
    return bool(status[:3] == "200")


class Connections:
    """Bytes that a client of the local socket, or of the HTTP server, may send: an answer, or the end."""

    def __init__(self, rng: Random) -> None:
        handlers: Handlers = {"status": lambda _: {"nodes": 1}, "why": dict, "fit": _what_if}
        self._admin = AdminServer(Path("unused"), handlers)
        self._http = _HttpServer()

    def feed(self, rng: Random) -> bool:
        """One connection."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            if rng.random() < 0.5:
                ours.sendall(_question(rng)[:QUESTION_BYTES_MAX])
                ours.shutdown(socket.SHUT_WR)
                self._admin.answer_one(theirs)
                return "answer" in json.loads(_all(ours))
            ours.sendall(_http_request(rng))
            ours.shutdown(socket.SHUT_WR)
            with contextlib.redirect_stderr(io.StringIO()):
                TimedHandler(theirs, ("client", 0), self._http)  # type: ignore[arg-type]
            theirs.close()
            return b" 200 OK" in _all(ours)


def _what_if(asked: Mapping[str, Any]) -> str:
    given = asked.get("request")
    try:
        return repr(what_if_of(given)) if isinstance(given, Mapping) else ""
    except WhatIfError as error:
        return str(error)


def _question(rng: Random) -> bytes:
    fields = {"flavor": "m1", "number": 3, "extra_specs": {"a": "b"}, "traits": ["CUSTOM_X"], "vcpus": 1}
    asked = {"ask": rng.choice(("status", "why", "fit", "no")), "id": SERVER, "request": value_like(fields, rng, 4)}
    line = json.dumps(asked, default=str)
    if rng.random() < 0.3:
        line = line.replace("3", rng.choice(JSON_VALUES), 1)
    return (mutated_bytes(line.encode(), rng) if rng.random() < 0.3 else line.encode()) + b"\n"


def _http_request(rng: Random) -> bytes:
    lines = [
        f"{rng.choice(('GET', 'HEAD', 'POST', ''))} {rng.choice(('/metrics', '/live', '*', '//x', SCRIPT))} HTTP/1.1"
    ]
    lines += [f"{rng.choice(('Host', 'X', 'Accept', 'Content-Length'))}: {rng.choice(VALUES)}" for _ in range(3)]
    body = ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8", "replace")
    return mutated_bytes(body, rng) if rng.random() < 0.5 else body


def _all(client: socket.socket) -> bytes:
    return b"".join(_parts(client))


def _parts(client: socket.socket) -> Iterator[bytes]:
    with contextlib.suppress(ConnectionResetError):  # it was closed before all was read
        while part := client.recv(65_536):
            yield part


class _HttpServer:
    """What a handler needs of its server."""

    base_environ: Mapping[str, str] = {**dict.fromkeys(("SCRIPT_NAME", "REMOTE_HOST", "CONTENT_LENGTH"), ""),
                                       "SERVER_NAME": "x", "SERVER_PORT": "0"}  # fmt: skip

    @staticmethod
    def get_app() -> Any:
        """Answers everything."""
        return lambda environ, start: (start("200 OK", [("Content-Type", "text/plain")]), [b"ok"])[1]
