# SPDX-License-Identifier: Apache-2.0
"""Nova's own scheduler ("stock"), which runs behind this one in mode ``shadow``, on a topic of its own.

Nova's topic is the constant ``nova.scheduler.rpcapi.RPC_TOPIC``, which no option changes; another ``control_exchange``
does not help, because the queue has the name of the topic.  Therefore ``shared-scheduler-stock`` sets the constant
before it runs the program of nova-scheduler.  The process is nova-scheduler in everything else.

Requests are passed on as they came, and answers are returned as they are serialised: nothing in them is interpreted.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Mapping
from typing import Any

import nova.conf
import oslo_messaging as messaging
from nova import baserpc, context, objects, rpc
from nova.objects import base as objects_base
from nova.scheduler import rpcapi

CONF = nova.conf.CONF

STOCK_TOPIC = "scheduler_stock"
#: how long a nova-scheduler may take to answer a ping
PING_S = 5.0
#: how long the message queue may take besides
CONNECT_S = 5.0
#: where oslo.messaging appends the traceback to the text of an exception
TRACEBACK = "\nTraceback (most recent call last):\n"
#: the ending with which oslo.messaging marks the class and the module of an exception that another process raised
REMOTE = "_Remote"


class StockAwayError(Exception):
    """No nova-scheduler answers on its topic."""


class RawAnswers(objects_base.NovaObjectSerializer):
    """Leaves answers as they are serialised."""

    def deserialize_entity(self, context: Any, entity: Any) -> Any:
        """See ``oslo_messaging.Serializer``."""
        return entity


class StockScheduler:
    """Every method can be called by any thread."""

    def __init__(self) -> None:
        target = messaging.Target(topic=STOCK_TOPIC, version="4.0")
        self._client = rpc.get_client(target, serializer=RawAnswers())

    def select_destinations(self, context: Any, arguments: Mapping[str, Any]) -> Any:
        """Its answer, serialised.  The time limits are those of nova-conductor.

        :raises Exception: when it raised it (see ``as_sent``), or does not answer
        """
        client = self._client.prepare(
            version="4.5", call_monitor_timeout=CONF.rpc_response_timeout, timeout=CONF.long_rpc_timeout
        )
        return client.call(context, "select_destinations", **arguments)

    def cast(self, context: Any, method: str, **arguments: Any) -> None:
        """Pass on a cast of nova-api or nova-compute to every nova-scheduler behind."""
        self._client.prepare(fanout=True, version="4.2").cast(context, method, **arguments)

    def send_aggregates(self) -> None:
        """Send all aggregates: casts that came in another mode were not passed on."""
        admin = context.get_admin_context()
        self.cast(admin, "update_aggregates", aggregates=objects.AggregateList.get_all(admin))

    def problem(self) -> str:
        """Why it cannot be used; empty if it answers.

        oslo.messaging waits for a broker that is away without a limit, so a thread asks."""
        answers: queue.Queue[str] = queue.Queue(1)
        threading.Thread(target=lambda: answers.put(self._ping()), name="stock-ping", daemon=True).start()
        try:
            return answers.get(timeout=PING_S + CONNECT_S)
        except queue.Empty:
            return "the message queue does not answer"

    def _ping(self) -> str:
        try:
            client = baserpc.BaseAPI(topic=STOCK_TOPIC).client.prepare(timeout=PING_S)
            client.call(context.get_admin_context(), "ping", arg="shadow")
        except messaging.MessagingException as error:
            return " ".join(str(error).split()) or type(error).__name__
        return ""

    def check(self) -> None:
        """Return if it answers.

        :raises StockAwayError: when it does not
        """
        problem = self.problem()
        if problem:
            raise StockAwayError(
                f"mode shadow needs a nova-scheduler on topic {STOCK_TOPIC}, and none answers ({problem}); "
                "start shared-scheduler-stock"
            )


def as_sent(error: Exception) -> Exception:
    """The exception with the class and the message that the other process sent, so that it can be sent on.

    oslo.messaging appends the traceback to the text of an exception that it restores.  A class that it does not
    restore has a module that is not allowed, and is not allowed for the next receiver either.
    """
    if isinstance(error, messaging.RemoteError):
        return _remote(str(error.exc_type), "nova_scheduler", (Exception,), str(error.value))(error.value)
    kind = type(error)
    if kind.__module__ == "builtins":  # its class cannot be changed, so the traceback is in its first argument
        message = _without_traceback(error.args[0] if error.args else "")
        return _remote(kind.__name__, "builtins", (kind,), message)(message, *error.args[1:])
    if kind.__name__.endswith(REMOTE):
        name, module = kind.__name__.removesuffix(REMOTE), kind.__module__.removesuffix(REMOTE)
        error.__class__ = _remote(name, module, kind.__bases__, _without_traceback(error))
    return error


def _remote(name: str, module: str, bases: tuple[type, ...], message: str) -> type[Exception]:
    """A class that oslo.messaging serialises as ``module.name`` with this message."""
    return type(name + REMOTE, bases, {"__module__": module + REMOTE, "__str__": lambda _: message})


def _without_traceback(text: object) -> str:
    return str(text).partition(TRACEBACK)[0]


def main() -> None:
    """Run nova-scheduler on ``STOCK_TOPIC``, with the arguments of nova-scheduler."""
    from nova.cmd import scheduler  # chooses the concurrency backend when it is imported

    rpcapi.RPC_TOPIC = STOCK_TOPIC
    scheduler.main()
