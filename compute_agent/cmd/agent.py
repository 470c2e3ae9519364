# SPDX-License-Identifier: Apache-2.0
"""``compute-agent --config-file nova.conf``: the agent beside one nova-compute.

Takes the arguments of nova-compute.  If the configuration cannot work, the command exits with one line that names the
remedy.  It waits for a broker, a Placement or a nova-compute that does not answer.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from shared_scheduler.daemon.endings import INTERRUPTED
from shared_scheduler.release import release

PROG = "compute-agent"
#: Exit codes: the configuration cannot work (EX_CONFIG), so that a restart would not help; at present, the disk is
#: full, another agent runs, or the address of the metrics cannot be bound (EX_TEMPFAIL); an unexpected error.
EXIT_CONFIG = 78
EXIT_TEMPORARY = 75
EXIT_UNEXPECTED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal.  Return the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # before the agent handles it
        return INTERRUPTED


def _run(arguments: Sequence[str] | None) -> int:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the handler that reloads is installed
    try:
        from shared_scheduler.novalib.threading_backend import choose_threads

        choose_threads()  # before anything else of Nova is imported
        from oslo_log import log

        from compute_agent.service.process import AgentProcess
        from compute_agent.service.state_directory import StateError, StateFullError, StateTakenError
        from compute_agent.sources import nova_conf
        from shared_scheduler.daemon.log_setup import LogError, LogUnavailableError, set_up
        from shared_scheduler.daemon.telemetry_address import TelemetryError, TelemetryUnavailableError
        from shared_scheduler.placement.reader import PlacementConfigError
        from shared_scheduler.protocol.errors import KeyringError
    except ImportError as error:
        return _refuse(f"{error}; install nova beside this package: pip install '.[agent]' in the project's directory")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        conf = nova_conf.load(given, PROG, release())
        set_up(conf, PROG)
        process = AgentProcess(conf, nova_conf.NovasConfiguration(given, PROG, release()))
    except (StateFullError, StateTakenError, LogUnavailableError) as error:
        return _refuse(str(error), EXIT_TEMPORARY)
    except (nova_conf.ConfigError, LogError, PlacementConfigError, StateError, KeyringError, ValueError) as error:
        return _refuse(str(error))
    try:
        process.run()
    except TelemetryError as error:
        return _refuse(str(error), EXIT_TEMPORARY if isinstance(error, TelemetryUnavailableError) else EXIT_CONFIG)
    except Exception as error:
        log.getLogger(__name__).exception("the agent exits because of an error")
        return _refuse(f"unexpected {type(error).__name__}: {error}; see the log", EXIT_UNEXPECTED)
    return 0


def _refuse(why: str, code: int = EXIT_CONFIG) -> int:
    print(f"{PROG}: {' '.join(why.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
