# SPDX-License-Identifier: Apache-2.0
"""``shared-scheduler-status upgrade check``: run it before the first start, and before each upgrade.

Takes the arguments of ``nova-status``.  Exit codes as there: 0 success, 1 warnings, 2 failures, 255 when the checks
could not run, 128 plus the number of the signal after a signal.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import partial

from shared_scheduler.daemon.endings import exit_code_of
from shared_scheduler.release import release

PROGRAM = "shared-scheduler-status"
#: not one of the codes of the checks
NOT_RUN = 255


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks and print their results.  Returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if "--version" in arguments:
        print(f"{PROGRAM} {release()}")
        return 0
    return exit_code_of(partial(_check, arguments), called=PROGRAM, unforeseen=NOT_RUN)


def _check(arguments: Sequence[str]) -> int:
    from oslo_config import cfg

    from shared_scheduler.novalib import threading_backend

    threading_backend.choose_threads()
    logging.basicConfig(level=logging.CRITICAL)  # the checks print their own lines
    from shared_scheduler.nova import upgrade_checks
    from shared_scheduler.transport.urls import TransportUrlError

    try:
        return upgrade_checks.run([PROGRAM, *arguments])
    except (cfg.Error, TransportUrlError) as error:
        print(f"{PROGRAM}: {' '.join(str(error).split())}", file=sys.stderr)
        return NOT_RUN


if __name__ == "__main__":
    sys.exit(main())
