# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-stock``: nova-scheduler on a topic of its own, for mode ``shadow``.

Takes the arguments of nova-scheduler.  The concurrency backend is chosen before Nova is imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from shared_scheduler.release import release


def main() -> int:
    """Run nova-scheduler until a signal ends it.  Returns the exit code: 78 if a configuration file cannot be used."""
    if "--version" in sys.argv[1:]:
        print(f"shared-scheduler-stock {release()} with nova {version('nova')}")
        return 0
    from oslo_config import cfg

    from shared_scheduler.daemon.config_files import unreadable_named
    from shared_scheduler.novalib import threading_backend

    try:
        with unreadable_named():
            threading_backend.choose()
            from shared_scheduler.nova import stock

            stock.main()
    except cfg.Error as error:
        print(f"shared-scheduler-stock cannot start: {' '.join(str(error).split())}", file=sys.stderr)
        return 78  # EX_CONFIG
    return 0


if __name__ == "__main__":
    sys.exit(main())
