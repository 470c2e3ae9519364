# SPDX-License-Identifier: Apache-2.0
"""The state that an agent keeps over restarts: its epoch, and the accepted claims and server groups of each node.

Files in ``[compute_agent] state_path``, each replaced as a whole, so that no reader sees a partly written one:

==============  ================================================================================
``agent.lock``  locked by the agent that runs; holds its process id
``epoch``       the newest epoch in decimal
``groups``      msgpack ``{node: {consumer: uuid of its server group or label}}``
``claims``      msgpack ``{node: [[claim as the protocol encodes it, [known as, ...]], ...]}``
==============  ================================================================================
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgpack

from compute_agent.effects import KeptClaim
from shared_scheduler.protocol.codec import decode, encode
from shared_scheduler.protocol.errors import ProtocolError
from shared_scheduler.protocol.limits import COUNT_MAX
from shared_scheduler.protocol.messages import Claim

LOG = logging.getLogger(__name__)

DIRECTORY_MODE = 0o750
#: Errors of a disk, or of a quota, that is full.
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
#: In place of the descriptor of a closed lock file.
CLOSED = -1


class StateError(Exception):
    """The state directory cannot be used.  The message names the cause and the remedy."""


class StateFullError(StateError):
    """There is no room for the state at present."""


class StateTakenError(StateError):
    """Another agent uses it at present."""


class StateDirectory:
    """Owned by one process at a time.

    :raises StateError: when it cannot be used, on construction
    """

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._lock: int = os.open(self.path / "agent.lock", os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise self._unusable(error) from error
        self._take_lock()
        self._kept: dict[str, tuple[KeptClaim, ...]] = self._load()
        self._groups: dict[str, dict[str, str]] = self._load_groups()
        self._groups_changed = False  # since they were written

    def _unusable(self, error: OSError) -> StateError:
        cause = f"[compute_agent] state_path = {self.path} cannot be used: {error}"
        if error.errno in FULL:
            return StateFullError(f"{cause}; make room there, and start the agent again if systemd does not")
        return StateError(f"{cause}; give the agent's user a directory that it may write")

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(self._lock)
            raise StateTakenError(
                f"another agent (process {pid}) runs with [compute_agent] state_path = {self.path}: "
                "stop it, or give this one a state_path of its own, and start it again if systemd does not"
            ) from None
        with suppress(OSError):  # only a second agent tells the id; what needs the disk reports it
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Release the directory.  Idempotent."""
        lock, self._lock = self._lock, CLOSED
        if lock != CLOSED:
            os.close(lock)

    def next_epoch(self, wall_clock_s: Callable[[], float]) -> int:
        """A new epoch that is greater than all earlier ones, even if the clock was set back.

        It is written to disk before it is used.  If the file is lost, the clock alone gives the epoch.

        :raises StateError: when it cannot be written
        """
        epoch = max(self._kept_epoch() + 1, int(wall_clock_s() * 1000))
        try:
            self._replace("epoch", f"{epoch}\n".encode(), durable=True)
        except OSError as error:
            raise self._unusable(error) from error
        return epoch

    def keep_epoch(self, epoch: int) -> None:
        """Keep an epoch that a node started while the agent runs, so that the next start uses a greater one.

        :raises OSError: when it cannot be written
        """
        if epoch > self._kept_epoch():
            self._replace("epoch", f"{epoch}\n".encode(), durable=True)

    def _kept_epoch(self) -> int:
        """The epoch in the file; 0 if there is none, or if no greater one would be possible."""
        try:
            epoch = int((self.path / "epoch").read_text())
        except (OSError, ValueError):
            return 0
        return epoch if 0 < epoch < COUNT_MAX else 0

    def kept(self) -> dict[str, tuple[KeptClaim, ...]]:
        """The claims that were kept, also for nodes without claims."""
        return dict(self._kept)

    def groups(self, node: str) -> Mapping[str, str]:
        """The server groups of a node's consumers: consumer -> uuid of the group."""
        return self._groups.get(node, {})

    def keep(self, node: str, claims: tuple[KeptClaim, ...], groups: Mapping[str, str]) -> None:
        """Replace the pending claims of a node, and the groups of its consumers.

        :raises OSError: when they cannot be written; the next change of a node writes them
        """
        if self._groups.get(node, {}) != groups:
            self._groups[node] = dict(groups)
            self._groups_changed = True
        self._kept[node] = claims
        self._save()

    def forget(self, node: str) -> None:
        """Remove a node that this nova-compute does not manage any more.

        :raises OSError: when that cannot be written; the next change of a node writes it
        """
        if self._groups.pop(node, None) is not None:
            self._groups_changed = True
        if self._kept.pop(node, None) is not None or self._groups_changed:
            self._save()

    def _save(self) -> None:
        try:
            self._save_groups()
        finally:  # the disk may have room for one of the two
            self._save_claims()

    def _save_groups(self) -> None:
        if self._groups_changed:
            self._replace("groups", msgpack.packb(self._groups))
            self._groups_changed = False

    def _load_groups(self) -> dict[str, dict[str, str]]:
        try:
            content = msgpack.unpackb((self.path / "groups").read_bytes())
            return {str(node): {str(uuid): str(of) for uuid, of in groups.items()} for node, groups in content.items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            LOG.warning(
                "the server groups kept in %s cannot be read (%s: %s); they are learnt again from the next claims of "
                "each group", self.path, type(error).__name__, error,
            )  # fmt: skip
            return {}

    def _save_claims(self) -> None:
        content = {
            node: [[encode(one.claim), sorted(one.known_as)] for one in claims] for node, claims in self._kept.items()
        }
        self._replace("claims", msgpack.packb(content))

    def _load(self) -> dict[str, tuple[KeptClaim, ...]]:
        try:
            content = msgpack.unpackb((self.path / "claims").read_bytes())
            return {
                node: tuple(_claim(body, known_as) for body, known_as in claims) for node, claims in content.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError, ProtocolError) as error:
            LOG.warning(
                "the claims kept in %s cannot be read (%s: %s); accepted claims are known again after "
                "the next reads of Placement and of the tracker", self.path, type(error).__name__, error,
            )  # fmt: skip
            return {}

    def _replace(self, name: str, content: bytes, durable: bool = False) -> None:
        target, new = self.path / name, self.path / f"{name}.new"
        with new.open("wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        new.replace(target)


def _claim(body: bytes, known_as: list[str]) -> KeptClaim:
    claim = decode(body)
    if not isinstance(claim, Claim):
        raise ValueError(f"a {type(claim).__name__} among the stored claims")
    return KeptClaim(claim, frozenset(known_as))
