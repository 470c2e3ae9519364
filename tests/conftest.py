# SPDX-License-Identifier: Apache-2.0
"""For every test: the concurrency backend, and the command that repeats a failure."""

from __future__ import annotations

import os

BACKEND = os.environ.get("SHARED_SCHEDULER_TEST_BACKEND", "threading")

if BACKEND == "eventlet":
    # before anything else is imported, as the service itself does
    import eventlet

    eventlet.monkey_patch()

from oslo_service import backend  # noqa: E402

# the first import of oslo.messaging would otherwise select eventlet for all tests
backend.init_backend(backend.BackendType(BACKEND))

import gc  # noqa: E402
import signal  # noqa: E402
from collections import defaultdict  # noqa: E402
from collections.abc import Generator  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.quick import is_left_out  # noqa: E402

# A shell ignores SIGINT for what it starts in the background, and processes inherit that; the tests press Control-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

REASON_WIDTH = 120
"""Characters of a failure's reason in the summary; the whole stands under the failure."""

SUMMARY_WIDTH = REASON_WIDTH + 140
"""Of a line of the summary: the reason, and the longest names of a test before it."""

SLOWEST_FILES = 25
SLOW_FILE_S = 10.0
"""The files that a summary names, and the least time of one."""

QUICK_EXAMPLES = 25
"""Of a property test, with ``--quick``; a quarter of the usual number."""

TRACEBACK = "Traceback (most recent call last):"
"""Begins what a program of ours printed; its reason is then the last line."""

# no test fails because the machine is slow, or with one draw in a thousand: "searching" draws anew in each run
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("searching", PATIENT, derandomize=False)
settings.register_profile("patient", PATIENT, derandomize=True, database=None)
settings.register_profile("quick", PATIENT, derandomize=True, database=None, max_examples=QUICK_EXAMPLES)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """Before the tests are imported, because their own settings are made from the profile's."""
    if config.getoption("quick"):
        settings.load_profile("quick")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the one command that reproduces it under each failure, and one line of reason into the summary."""
    report: pytest.TestReport = yield
    if report.failed:
        _shorten_reason(report)
        group = item.get_closest_marker("xdist_group")
        nodeid = item.nodeid.removesuffix(f"@{group.args[0]}" if group else "")
        prefix = "" if BACKEND == "threading" else f"SHARED_SCHEDULER_TEST_BACKEND={BACKEND} "
        report.sections.append(("reproduce with", f"{prefix}tools/test '{nodeid}'"))
    return report


def _shorten_reason(report: pytest.TestReport) -> None:
    """Pytest's last lines repeat the whole message where ``CI`` is set, and some messages hold the log of a process."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        lines = crash.message.splitlines() or [""]
        line = lines[-1] if lines[0].endswith(TRACEBACK) else lines[0]
        crash.message = line[:REASON_WIDTH]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Pytest shortens the summary's lines to the terminal's width, also where there is none: no room for a reason."""
    if not terminalreporter.isatty:
        config.get_terminal_writer().fullwidth = SUMMARY_WIDTH
    _print_slowest_files(terminalreporter)


def _print_slowest_files(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds of each file, with its fixtures: which of them decide how long a run with several workers takes."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.split("::")[0]] += report.duration
    slow = [(spent_s, file) for file, spent_s in seconds.items() if spent_s >= SLOW_FILE_S]
    slowest = sorted(slow, reverse=True)[:SLOWEST_FILES]
    if slowest:
        terminalreporter.section("slowest files")
        for spent_s, file in slowest:
            terminalreporter.write_line(f"{spent_s:.0f}s {file}")


SECOND_CLOUD = (
    "test_embedded_agent", "test_seeds", "test_numa", "test_mixed_agents", "test_records", "test_modes", "test_flows",
    "test_chaos",
)  # fmt: skip
"""About half of the cloud tests by their length, in this order: what has options of its own for all of Nova, which each
of its services is restarted for, is behind the others; what may leave the most behind is the last."""

LONG = (
    "test_broker_faults", "test_decisions", "test_novas_own", "test_package", "test_candidates",
    "test_placement_batches", "test_transport_rabbitmq", "test_novas_vectors", "test_planted_bugs", "test_simulator",
    "test_under_eventlet", "test_placement_operations", "test_placement_app", "test_manager", "test_slow_placement",
    "test_fuzz", "test_rabbitmq_4", "test_planted_in_parts",
)  # fmt: skip
"""Files that take a minute and more of a machine with two cores: begun early, or the run ends with one worker at one of
them. While the clouds and the drill of the broker start their processes, the other worker computes."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For several workers (``tools/test``): there are two clouds, and a file's tests share its fixtures.

    Before xdist's own hook, which reads these marks. What takes the longest comes first: the clouds.
    """
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    items.sort(key=_turn)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    """A cloud, or the one broker that several files share, or a file."""
    fixtures = getattr(item, "fixturenames", ())
    if "running_cloud" in fixtures:
        return "cloud2" if item.path.stem in SECOND_CLOUD else "cloud1"
    return "shared_rabbit" if "shared_rabbit" in fixtures else item.nodeid.split("::")[0]


def _turn(item: pytest.Item) -> tuple[str, int]:
    """Clouds by their name, then long files, then all others as they were collected."""
    group, file = _group(item), item.path.stem
    if group.startswith("cloud"):
        return group, SECOND_CLOUD.index(file) if group == "cloud2" else 0
    return ("long", LONG.index(file)) if file in LONG else ("others", 0)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported and collected stays until the end: the garbage collector need not look at it each time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``tools/test --quick`` gives it."""
    parser.addoption("--quick", action="store_true", help="leave out what needs Nova, Placement or minutes")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``--quick``, whole files, and folders whose fixtures need what is absent."""
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    if config.getoption("quick") and file.suffix == ".py" and file.is_file() and is_left_out(file):
        return True
    return None


def pytest_report_header(config: Any) -> str:
    """Which backend this run has."""
    return f"concurrency backend: {BACKEND}"
