# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler``: the service, with the command line of ``nova-scheduler``.

Imports stand inside the function because the concurrency backend must be chosen before any module that it
patches is imported.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from shared_scheduler.daemon.endings import INTERRUPTED
from shared_scheduler.release import release

#: The name in ``ps`` and for the probes of deployments (``doc/source/admin/deployers.rst``), as long as Linux keeps it.
PROCESS_NAME = "shared-scheduler"[:15]


def main() -> int:
    """Run the service until a signal ends it.  Returns the exit code (``nova.process``)."""
    try:
        return _serve()
    except KeyboardInterrupt:  # before the service handles it
        return INTERRUPTED


def _serve() -> int:
    with contextlib.suppress(OSError):  # workers are started by the interpreter and would have its name
        Path("/proc/self/comm").write_text(PROCESS_NAME)
    if "--version" in sys.argv[1:]:
        print(f"shared-scheduler {release()} with nova {version('nova')}")
        return 0
    for number in (signal.SIGHUP, signal.SIGUSR2):  # until the service handles them
        signal.signal(number, signal.SIG_IGN)

    from oslo_config import cfg

    from shared_scheduler.daemon.config_files import unreadable_named
    from shared_scheduler.novalib import threading_backend

    try:
        with unreadable_named():
            threading_backend.choose()
    except (cfg.Error, ValueError) as error:
        print(f"shared-scheduler cannot start: {error}", file=sys.stderr)
        return 78  # EX_CONFIG
    from shared_scheduler.nova import process

    return process.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
