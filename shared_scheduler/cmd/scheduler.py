# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler``: the service, with the command line of ``nova-scheduler``.

Imports stand inside the function on purpose: the concurrency backend is chosen before any module
that it would have to patch is loaded.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run until a signal ends it; the exit status is 0, or 78 when it could not start."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again

    from oslo_config import cfg

    from shared_scheduler.nova import backend

    try:
        backend.choose()
    except (cfg.Error, ValueError) as error:
        print(f"shared-scheduler cannot start: {error}", file=sys.stderr)
        return 78  # EX_CONFIG
    from shared_scheduler.nova import process

    return process.main(sys.argv)


if __name__ == "__main__":
    sys.exit(main())
