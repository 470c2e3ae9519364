# SPDX-License-Identifier: Apache-2.0
"""Which RabbitMQ: the machine's own, or one unpacked elsewhere, such as by ``tools/install-rabbitmq-4``."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from .errors import CloudError
from .layout import venvs

SYSTEM = ""
"""The machine's own, where its package puts it."""


PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""For what RabbitMQ's scripts call beside Erlang; not the caller's, or another shell would mean another broker."""


def directory(text: str) -> str:
    """A broker's directory as it was given, so that it holds from everywhere; `SYSTEM` stays."""
    return str(Path(text).absolute()) if text else SYSTEM


def chosen() -> str:
    """The directory that $SHARED_SCHEDULER_RABBITMQ names, or `SYSTEM`."""
    return directory(os.environ.get("SHARED_SCHEDULER_RABBITMQ", ""))


def rabbitmq_4() -> str:
    """Directory of the broker that ``tools/install-rabbitmq-4`` unpacks."""
    return str(venvs() / "rabbitmq4")


@dataclass(frozen=True)
class Programs:
    """The programs of one RabbitMQ and its Erlang; ``directory`` is what it was unpacked into, or `SYSTEM`."""

    directory: str = SYSTEM

    @property
    def server(self) -> str:
        return str(self._scripts / "rabbitmq-server")

    @property
    def control(self) -> str:
        return str(self._scripts / "rabbitmqctl")

    @property
    def store(self) -> str:
        """Name for the directory of what it keeps: no release reads all that another has written."""
        return f"mnesia-{Path(self.directory).name}" if self.directory else "mnesia"

    @property
    def environment(self) -> dict[str, str]:
        """What has to be set for its own Erlang to be found first."""
        return {"PATH": f"{self._root / 'usr/lib/erlang/bin'}:{PATH}"} if self.directory else {}

    @property
    def _root(self) -> Path:
        return Path(self.directory or "/")

    @property
    def _scripts(self) -> Path:
        return self._root / "usr/lib/rabbitmq/bin"  # those in /usr/sbin insist on the system's user rabbitmq

    def check(self) -> None:
        """A `CloudError` that says what to do if they are not there."""
        for program in (self.server, self.epmd()):
            if shutil.which(program) is None:
                remedy = "run tools/install"
                if self.directory:
                    remedy = f"tools/install-rabbitmq-4 unpacks one into {rabbitmq_4()}"
                raise CloudError(f"{program} is not there; {remedy}")

    def epmd(self) -> str:
        """Erlang's port mapper."""
        return str(self._root / "usr/bin/epmd") if self.directory else "epmd"
