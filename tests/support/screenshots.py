# SPDX-License-Identifier: Apache-2.0
"""Takes the pictures of the documentation (``tools/screenshots``)."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from random import Random

from shared_scheduler.daemon.admin import AdminServer
from shared_scheduler.daemon.http_server import serve_at
from shared_scheduler.daemon.telemetry_address import TelemetryAddress
from shared_scheduler.page.queries import LOAD_TTL_S, PageQuestions
from shared_scheduler.page.site import Site
from shared_scheduler.records.json_lines import JsonLines
from tests.support.browser import chromium, prefer
from tests.support.shown_cloud import NO_ADDRESS, ShownScheduler, build, day, hosts

IMAGES = Path(__file__).resolve().parents[2] / "doc" / "source" / "admin" / "images"
NODES, REQUESTS = 1_200, 1_500
#: the moment of the pictures, so that they change with the page only
NOW_S = 1_795_455_000.0
#: the last decision of the day
SERVER = f"req-{REQUESTS - 1:08x}-0a7e-4f0f-8b0a-3b1d6f1a2c3d"
#: picture -> path, colour scheme, height in pixels
PICTURES = {
    "page-fleet": ("/", "light", 1180), "page-fleet-dark": ("/?show=stranded", "dark", 1180),
    "page-request": (f"/why?id={SERVER}", "light", 1180), "page-reasons": ("/reasons?hours=24", "light", 600),
}  # fmt: skip


def main() -> int:
    """Serve a made-up cloud, and take each picture.  Returns the exit code."""
    with tempfile.TemporaryDirectory() as directory:
        _take(Path(directory))
    return 0


def _take(directory: Path) -> None:
    rng = Random(3)
    fleet = hosts(NODES, rng)
    store = JsonLines(directory / "records.jsonl")
    records = list(day(NOW_S, REQUESTS, rng, [one["host"] for one in fleet]))
    store.write(records)
    last = next(one for one in reversed(records) if one["request_id"] == SERVER)
    failed = [build(last["instances"][0], host, NOW_S + 4 + n, NO_ADDRESS) for n, host in enumerate(last["answer"][0])]
    store.write(failed)
    scheduler = AdminServer(directory / "c-1.sock", ShownScheduler(fleet, started_at=NOW_S - 259_200).questions())
    scheduler.start()
    server = serve_at(TelemetryAddress("127.0.0.1", 0), threads=True)
    server.set_app(
        Site(PageQuestions(store, directory, lambda: NOW_S), ("127.0.0.1",), " --config-file /etc/nova/nova.conf")
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    IMAGES.mkdir(exist_ok=True)
    for name, (path, scheme, height) in PICTURES.items():
        url = f"http://127.0.0.1:{server.server_port}{path}"
        _picture(directory / name, url, scheme, height, IMAGES / f"{name}.png")
    server.shutdown()
    scheduler.stop()


def _picture(profile: Path, url: str, scheme: str, height: int, path: Path) -> None:
    with chromium(profile, 1240, height) as browser:
        prefer(browser, scheme)
        browser.get(url)
        time.sleep(LOAD_TTL_S)
        browser.get(url)  # rates need a second look
        browser.save_screenshot(str(path))
    print(path)
