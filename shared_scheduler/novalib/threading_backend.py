# SPDX-License-Identifier: Apache-2.0
"""Native threads or eventlet: chosen before anything else is imported, as each Nova service does.

Nova's own function decides: the environment variable ``OS_NOVA_DISABLE_EVENTLET_PATCHING`` first,
then ``[DEFAULT] concurrency_backend`` (auto, threading, eventlet) of the configuration files on the
command line, then native threads.  With native threads an import of eventlet is refused from here
on.  Nova asks ``monkey_patch.is_patched()`` in many places later, so it must be Nova's own.
"""

from __future__ import annotations

import os

from nova import monkey_patch


def choose() -> None:
    """Patch, or forbid patching.  Once a process."""
    monkey_patch.patch(backend="threading")


def choose_threads() -> None:
    """For commands: native threads, whatever the configuration of the services says."""
    os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"
    choose()
