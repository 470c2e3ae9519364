# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-stock``: nova-scheduler on a topic of its own, for mode ``shadow``.

Takes the arguments of nova-scheduler.  The concurrency backend is chosen before Nova is imported.
"""

from __future__ import annotations

import sys
from importlib.metadata import version

from shared_scheduler.release import release


def main() -> None:
    """Run nova-scheduler until a signal ends it."""
    if "--version" in sys.argv[1:]:
        print(f"shared-scheduler-stock {release()} with nova {version('nova')}")
        return
    from shared_scheduler.novalib import threading_backend

    threading_backend.choose()
    from shared_scheduler.nova import stock

    stock.main()


if __name__ == "__main__":
    main()
