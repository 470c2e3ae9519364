# SPDX-License-Identifier: Apache-2.0
"""Selects native threads or eventlet before anything else is imported, as in each Nova service.

Nova's own function decides: first by the environment variable ``OS_NOVA_DISABLE_EVENTLET_PATCHING``, then by
``[DEFAULT] concurrency_backend`` (auto, threading, eventlet) in the configuration files on the command line; the
default is native threads.  With native threads, later imports of eventlet are refused.  Nova calls
``monkey_patch.is_patched()`` in many places, so Nova's own function must be used.
"""

from __future__ import annotations

import os

from nova import monkey_patch


def choose() -> None:
    """Patch, or forbid patching.  Call it once in each process."""
    monkey_patch.patch(backend="threading")


def choose_threads() -> None:
    """Select native threads for a command, regardless of the configuration of the services."""
    os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
    choose()
