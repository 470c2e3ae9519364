# SPDX-License-Identifier: Apache-2.0
"""The page and its JSON as a WSGI application: which requests are accepted, and what each answer says of itself.

Nothing here changes anything: only GET and HEAD are accepted, without a body.  A page of another site that a browser
has open may send requests to this one under a name of its own (DNS rebinding), so each request must name this site in
``Host``.  No script, style or picture of another origin is loaded (``Content-Security-Policy``), and none within the
text of a page is run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any
from urllib.parse import parse_qsl, urlencode

from shared_scheduler.answers.schema import schemas
from shared_scheduler.answers.times import timed
from shared_scheduler.daemon.admin import AdminError
from shared_scheduler.page.queries import BadQuestionError, Fields, NoSuchPageError, NotRecordedError, PageQuestions
from shared_scheduler.page.views import Views
from shared_scheduler.records.errors import RecordsError

LOG = logging.getLogger(__name__)

QUERY_CHARS_MAX = 2048
FIELDS_MAX = 16
METHODS = ("GET", "HEAD")
API, STATIC, SCHEMA = "/api/", "/static/", "/api/schema"
#: files of the page and their types
FILES = {
    "page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}  # fmt: skip
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)

Answer = tuple[str, str, bytes]
StartResponse = Callable[..., Any]


class Refused(Exception):
    """A request that is not answered; the text is for its sender."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Site:
    """``names``: what ``Host`` may say, without the port; ``place``: the arguments by which a command reads the same
    records, each after a space."""

    def __init__(self, questions: PageQuestions, names: Iterable[str], place: str = "") -> None:
        self._questions = questions
        self._views = Views(questions, place)
        self._names = frozenset(name.lower() for name in names)
        files = resources.files("shared_scheduler.page") / "static"
        self._files: Mapping[str, Answer] = {
            name: ("200 OK", kind, (files / name).read_bytes()) for name, kind in FILES.items()
        }

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        more: tuple[tuple[str, str], ...] = ()
        try:
            self._check(environ)
            path, fields = environ["PATH_INFO"], _fields(environ.get("QUERY_STRING", ""))
            if path == "/find":
                status, kind, body = "303 See Other", TEXT, b""
                more = (("Location", self._found(fields)),)
            else:
                status, kind, body = self._answer(path, fields)
        except Refused as error:
            status, kind, body = error.status, TEXT, f"{error}\n".encode()
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *HEADERS, *more])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _check(self, environ: Mapping[str, Any]) -> None:
        if _without_port(environ.get("HTTP_HOST", "")) not in self._names:
            raise Refused("403 Forbidden", "This site has another name; serve --host-name adds one.")
        if environ["REQUEST_METHOD"] not in METHODS:
            raise Refused("405 Method Not Allowed", "This site is read only: send GET.")
        if environ.get("CONTENT_LENGTH", "") not in ("", "0") or "HTTP_TRANSFER_ENCODING" in environ:
            raise Refused("400 Bad Request", "A request here has no body.")
        if len(environ["PATH_INFO"]) + len(environ.get("QUERY_STRING", "")) > QUERY_CHARS_MAX:
            raise Refused("414 URI Too Long", f"At most {QUERY_CHARS_MAX} characters are accepted.")

    def _answer(self, path: str, fields: Fields) -> Answer:
        if path.startswith(STATIC) and path.removeprefix(STATIC) in self._files:
            return self._files[path.removeprefix(STATIC)]
        if path == SCHEMA:
            return _json("200 OK", schemas())
        is_api = path.startswith(API)
        try:
            if is_api:
                return _json("200 OK", self._questions.ask(path.removeprefix(API), fields))
            return "200 OK", HTML, _encoded(self._page(path, fields))
        except Exception as error:
            status, title, text = _failure(error)
            if is_api:
                return _json(status, {"error": text})
            return status, HTML, _encoded(self._views.error(title, text))

    def _page(self, path: str, fields: Fields) -> str:
        if path not in self._views.pages:
            raise NoSuchPageError("The pages are in the line at the top.")
        return self._views.pages[path](fields)

    def _found(self, fields: Fields) -> str:
        try:
            place, name = self._views.place_of(fields)
        except RecordsError:
            place, name = "why", fields.get("q", "")
        return f"/{place}?" + urlencode({"host" if place == "host" else "id": name})


def _failure(error: Exception) -> tuple[str, str, str]:
    """Status, title and text.  An unforeseen error is logged, and its text stays here."""
    match error:
        case NoSuchPageError():
            return "404 Not Found", "There is no such page", str(error)
        case NotRecordedError():
            return "404 Not Found", "No record", str(error)
        case BadQuestionError():
            return "400 Bad Request", "The question is not complete", str(error)
        case RecordsError():
            return "503 Service Unavailable", "The records cannot be read", str(error)
        case AdminError():
            return "503 Service Unavailable", "No scheduler answers", str(error)
    LOG.error("An answer failed", exc_info=error)
    return "500 Internal Server Error", "This page failed", "The output of the command serve has the reason."


def _fields(query: str) -> Fields:
    try:
        return dict(parse_qsl(query, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Refused("400 Bad Request", f"At most {FIELDS_MAX} fields are accepted.") from None


def _json(status: str, answer: Any) -> Answer:
    return status, JSON, json.dumps(timed(answer)).encode() + b"\n"


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", "replace")  # half of a surrogate pair, which JSON may hold, is no text


def _without_port(host: str) -> str:
    """``localhost`` of ``LOCALHOST:8780``, ``[::1]`` of ``[::1]:8780``."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()
