# SPDX-License-Identifier: Apache-2.0
"""The same cloud as the functional tests have; these here are run by name (``tools/test tests/longer``)."""

from tests.functional.conftest import cloud, pytest_runtest_makereport, remember_logs, running_cloud

__all__ = ["cloud", "pytest_runtest_makereport", "remember_logs", "running_cloud"]
