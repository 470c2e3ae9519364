# SPDX-License-Identifier: Apache-2.0
"""Where a program serves its metrics and its health: an address or a Unix socket.  An option of both programs."""

from __future__ import annotations

from dataclasses import dataclass

from oslo_config import cfg

PORT_MAX = 65535

#: the option of both programs, each in a group of its own
TELEMETRY = [
    cfg.StrOpt(
        "metrics_listen",
        default="",
        help=(
            "Where the process serves its metrics for Prometheus (``/metrics``) and its health (``/live``, ``/ready``) "
            "over HTTP: ``address:port``, or the path of a Unix socket. The socket is readable and writable for user "
            "and group of the process. There is no authentication and no TLS: use an address of the management "
            "network. With several scheduler workers, worker N uses port + N, or adds ``.workerN`` to the path. "
            "Empty: nothing is served."
        ),
    ),
]


class TelemetryError(ValueError):
    """The metrics cannot be served as configured; the text names the option and the reason."""


class TelemetryUnavailableError(TelemetryError):
    """They cannot be served at present, but later perhaps: the address is not there yet, or is in use."""


@dataclass(frozen=True, slots=True)
class TelemetryAddress:
    """``path`` of a Unix socket, or else ``host`` and ``port``."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    def of_worker(self, number: str | None) -> TelemetryAddress:
        """The address of one of several workers; None: there is only one."""
        if number is None:
            return self
        if self.path:
            return TelemetryAddress(path=f"{self.path}.worker{number}")
        return TelemetryAddress(self.host, self.port + int(number))


def telemetry_address(given: str, group: str) -> TelemetryAddress | None:
    """The value of ``metrics_listen`` in ``[group]``; None if nothing is to be served.

    :raises TelemetryError: when it cannot be used
    """
    if not given:
        return None
    return parsed(given, f"[{group}] metrics_listen")


def parsed(given: str, option: str) -> TelemetryAddress:
    """An address of a person.  ``option``: where it was given.

    :raises TelemetryError: when it cannot be used
    """
    if given.startswith("/"):
        return TelemetryAddress(path=given)
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) <= PORT_MAX):
        raise TelemetryError(
            f"{option} = {given}: write address:port, for example 127.0.0.1:9190, or the absolute path of a Unix socket"
        )
    return TelemetryAddress(host.removeprefix("[").removesuffix("]"), int(port))
