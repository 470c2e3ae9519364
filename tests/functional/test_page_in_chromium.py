# SPDX-License-Identifier: Apache-2.0
"""The page in a real Chromium: with the keyboard alone, in both colour schemes, and against hostile names."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from shared_scheduler.daemon.http_server import serve_at
from shared_scheduler.daemon.telemetry_address import TelemetryAddress
from tests.support.browser import SCHEMES, chromium, prefer
from tests.support.shown_cloud import build
from tests.unit.page.test_site import FORGED, HOST, NOW_S, NOWHERE, SERVER, Cloud, no_host

PATIENCE_S = 180.0
#: contrast of text that WCAG 2.2 asks for at level AA
CONTRAST_MIN = 4.5
#: a person who has not found something after so many steps gives up
TABS_MAX = 60


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a page is served; the first node and a server have hostile names."""
    cloud = Cloud(tmp_path_factory.mktemp("cloud"), ("127.0.0.1",))
    cloud.fleet[0].update(host=FORGED, why_not=FORGED)
    cloud.store.write([build(FORGED, FORGED, NOW_S, FORGED), no_host()])
    cloud.scheduler.start()
    server = serve_at(TelemetryAddress("127.0.0.1", 0), threads=True)
    server.set_app(cloud.site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    cloud.scheduler.stop()


def press(browser: webdriver.Chrome, *keys: str) -> None:
    for key in keys:
        ActionChains(browser).send_keys(key).perform()


def tab_to(browser: webdriver.Chrome, name: str) -> None:
    """Press Tab until the element with this id or text has the focus; each one on the way shows that it has it."""
    for _ in range(TABS_MAX):
        press(browser, Keys.TAB)
        focused = browser.switch_to.active_element
        assert focused.value_of_css_property("outline-style") != "none", focused.get_attribute("outerHTML")
        if name in (focused.get_attribute("id"), focused.text):
            return
    raise AssertionError(f"{name} was not reached by Tab")


def until(browser: webdriver.Chrome, text: str) -> None:
    """Wait for a heading."""
    WebDriverWait(browser, PATIENCE_S).until(lambda found: text in found.find_element("tag name", "h1").text)


def test_a_request_is_found_with_the_keyboard_alone(browser: webdriver.Chrome, place: str) -> None:
    browser.get(place)

    press(browser, "/", *SERVER, Keys.ENTER)

    until(browser, f"The build on {HOST} failed")
    assert "NoMoreFixedIps" in browser.find_element("class name", "causes").text
    tab_to(browser, "host")
    press(browser, *HOST, Keys.ENTER)
    WebDriverWait(browser, PATIENCE_S).until(lambda found: found.find_elements("class name", "facts"))
    assert f"the build on {HOST} ended: failed" in browser.find_element("class name", "facts").text


def test_the_map_is_walked_with_arrows_and_opens_a_host(browser: webdriver.Chrome, place: str) -> None:
    browser.get(place)
    tab_to(browser, "map")
    told = browser.find_element("id", "cursor-text")
    WebDriverWait(browser, PATIENCE_S).until(lambda _: "<script>" in told.text)  # the hostile name, as text

    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_UP, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)

    WebDriverWait(browser, PATIENCE_S).until(lambda _: told.text.startswith("rack000-c03"))
    press(browser, Keys.ENTER)
    until(browser, "rack000-c03")


def test_pages_are_reached_by_tab_and_the_first_step_skips_to_the_content(
    browser: webdriver.Chrome, place: str
) -> None:
    browser.get(place)
    tab_to(browser, "Skip to the content")
    press(browser, Keys.ENTER)
    wait = WebDriverWait(browser, PATIENCE_S)
    wait.until(lambda found: found.switch_to.active_element.get_attribute("id") == "main")

    for name, title in (("Records", "Records"), ("Reasons", "Why requests and builds fail"), ("Fleet", "Fleet")):
        browser.get(place)
        tab_to(browser, name)
        press(browser, Keys.ENTER)
        until(browser, title)


def test_what_the_hosts_lacked_is_one_line_and_no_id_is_broken(browser: webdriver.Chrome, place: str) -> None:
    browser.get(f"{place}/why?id={NOWHERE}")
    lacking = next(one for one in browser.find_elements("css selector", ".causes li") if "100000 MB" in one.text)
    words = browser.find_elements("css selector", ".next code span")

    assert lines(browser, lacking) == 1
    assert NOWHERE in [word.text for word in words]
    assert {lines(browser, word) for word in words} == {1}


def lines(browser: webdriver.Chrome, element: WebElement) -> int:
    """How many lines the text of an element fills."""
    return round(browser.execute_script(
        "return arguments[0].getBoundingClientRect().height / parseFloat(getComputedStyle(arguments[0]).lineHeight)",
        element))  # fmt: skip


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "path", ["/", "/records", "/reasons", f"/why?id={SERVER}", f"/why?id={NOWHERE}", f"/host?host={HOST}"]
)
def test_text_has_contrast_in_both_schemes(browser: webdriver.Chrome, place: str, path: str, scheme: str) -> None:
    prefer(browser, scheme)
    browser.get(place + path)

    ground = luminance(browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))
    found = browser.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,p,a,th,td,li,label,dt,dd,button,span,caption,output')]"
        ".filter(one => one.innerText && one.innerText.trim()).map(one => getComputedStyle(one).color)"
    )

    assert (ground < 0.2) == (scheme == "dark")
    poor = {colour for colour in found if contrast(luminance(colour), ground) < CONTRAST_MIN}
    assert found and poor == set()


@pytest.mark.parametrize(
    "path", ["/", "/?show=lag", "/records", "/reasons", f"/why?id={SERVER}", f"/why?id={NOWHERE}", f"/host?host={HOST}"]
)
def test_no_page_is_wider_than_a_phone_nor_breaks_its_own_policy(
    browser: webdriver.Chrome, place: str, path: str
) -> None:
    browser.get_log("browser")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True})  # fmt: skip
    try:
        browser.get(place + path)
        width = browser.execute_script("return document.documentElement.scrollWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    assert width <= 400
    assert [line["message"] for line in browser.get_log("browser")] == []


def test_what_hosts_lack_is_as_wide_as_the_causes(browser: webdriver.Chrome, place: str) -> None:
    browser.get(f"{place}/records?kind=decision&result=no_valid_host&count=1")
    browser.get(browser.find_element("css selector", "tbody a.id").get_attribute("href") or "")

    cause, lacking = (browser.find_element("css selector", f".causes {each}") for each in ("ol li", "ul li"))
    assert "short of MEMORY_MB by" in lacking.text
    assert lacking.size["width"] == cause.size["width"] and lacking.size["height"] < 2 * cause.size["height"]


def test_a_hostile_name_runs_nothing(browser: webdriver.Chrome, place: str) -> None:
    browser.get(f"{place}/records?kind=build&count=5")

    assert "<script>alert(1)</script>" in browser.find_element("tag name", "main").text
    assert browser.find_elements("css selector", "main script, main img") == []
    assert browser.title.startswith("Records"), "an alert would have stopped the driver"


def luminance(colour: str) -> float:
    """The relative luminance of ``rgb(...)``, as WCAG defines it."""
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)
