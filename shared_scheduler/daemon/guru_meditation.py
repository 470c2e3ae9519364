# SPDX-License-Identifier: Apache-2.0
"""Guru Meditation Reports of both programs: their release, and a section of theirs beside those of oslo.reports.

A report is written in a signal handler, in the main thread.  What the section shows may need a lock that this thread
holds, so another thread asks for it, for a bounded time, unless the caller says that it may be read in place.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from shared_scheduler.release import release

Ask = Callable[[], Mapping[str, Any]]

TITLE = "State of this process"
ANSWER_TIMEOUT_S = 5.0


class Product:
    """What a report says of the program (``oslo_reports/generators/version.py``)."""

    def __init__(self, name: str, nova: str, vendor: str = "OpenStack Foundation") -> None:
        """``nova``: the version of Nova that the program uses."""
        self._name, self._nova, self._vendor = name, nova, vendor

    def vendor_string(self) -> str:
        """The vendor of this Nova."""
        return self._vendor

    def product_string(self) -> str:
        """The name of the product."""
        return self._name

    def version_string_with_package(self) -> str:
        """Our release, and that of Nova."""
        return f"{release()} with nova {self._nova}"


def report_on_signal(product: Product, service: str, conf: Any, ask: Ask) -> None:
    """Write a report, with the answer of ``ask`` as a section, at SIGUSR2 or as ``[oslo_reports]`` says."""
    from oslo_reports import guru_meditation_report as gmr

    gmr.TextGuruMeditation.register_section(TITLE, lambda: section(ask))
    gmr.TextGuruMeditation.setup_autorun(product, service_name=service, conf=conf)


def report_late(product: Product, service: str, conf: Any, ask: Ask) -> None:
    """Like ``report_on_signal``, but oslo.reports is imported at the first signal, because it needs memory."""

    def first(number: int, _frame: object) -> None:
        from oslo_reports import opts

        opts.set_defaults(conf)
        report_on_signal(product, service, conf, ask)
        signal.raise_signal(number)

    signal.signal(signal.SIGUSR2, first)


def section(ask: Ask) -> Any:
    """The answer as a model of oslo.reports.  An error is the answer, because it must not end the report."""
    from oslo_reports.models.with_default_views import ModelWithDefaultViews

    try:
        answer = dict(ask())
    except Exception as error:
        answer = {"not available": f"{type(error).__name__}: {error}".rstrip(": ")}
    return ModelWithDefaultViews(answer)


def in_another_thread(ask: Ask) -> Ask:
    """``ask``, which raises TimeoutError if it has not answered within ``ANSWER_TIMEOUT_S``."""

    def asked() -> Mapping[str, Any]:
        answer: Future[Mapping[str, Any]] = Future()
        threading.Thread(target=_answer, args=(answer, ask), name="report", daemon=True).start()
        return answer.result(ANSWER_TIMEOUT_S)

    return asked


def _answer(answer: Future[Mapping[str, Any]], ask: Ask) -> None:
    try:
        answer.set_result(ask())
    except Exception as error:
        answer.set_exception(error)
