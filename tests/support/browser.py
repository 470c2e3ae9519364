# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, which a test or a tool drives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from urllib3.exceptions import HTTPError

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
#: without scroll bars in pictures, and without the background traffic of a desktop browser, which no test wants; in
#: containers, /dev/shm is too small for pages
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
SCHEMES = ("light", "dark")
#: its driver waits a minute for a browser, which may not be enough on a busy machine
STARTS = 3


@contextmanager
def chromium(profile: Path, width: int = 1280, height: int = 1000) -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile below the directory ``profile``; it ends with the context."""
    browser = _started(profile, f"--window-size={width},{height}")
    try:
        yield browser
    finally:
        browser.quit()


def _started(profile: Path, size: str) -> webdriver.Chrome:
    """The browser, once it starts.

    :raises WebDriverException: when it does not, ``STARTS`` times
    """
    for number in range(1, STARTS):
        try:
            return _start(profile / f"start-{number}", size)
        except (WebDriverException, HTTPError) as error:
            print(f"start {number} of the browser: {error}")
    return _start(profile / f"start-{STARTS}", size)


def _start(profile: Path, size: str) -> webdriver.Chrome:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}", size):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


def prefer(browser: webdriver.Chrome, scheme: str) -> None:
    """Let pages see that the person prefers this colour scheme."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
