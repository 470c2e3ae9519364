# SPDX-License-Identifier: Apache-2.0
"""A request that failed becomes an exception that the conductor knows.

The RPC layer restores only classes of ``nova.exception``.  Anything else would arrive as RemoteError, which
the conductor handles differently (contract 1.6).  The texts are Nova's.  The details of the decision are in
its record and in the log, where users do not see them.
"""

from __future__ import annotations

from nova import exception
from nova.i18n import _

from shared_scheduler.core.effects import Fail, FailureCode


def not_enough_hosts() -> BaseException:
    """Nova's error when no host is left."""
    error: BaseException = exception.NoValidHost(reason=_("There are not enough hosts available."))
    return error


def exception_of(failure: Fail) -> BaseException:
    """What to raise for a failed request."""
    error: BaseException
    if failure.code is FailureCode.CONSUMER_CONFLICT:
        consumers = ",".join(uuid for uuid in failure.request.instance_uuids if uuid)
        error = exception.AllocationUpdateFailed(consumer_uuid=consumers, error=failure.text)
    elif failure.code is FailureCode.NO_VALID_HOST:
        error = not_enough_hosts()
    else:
        error = exception.NoValidHost(reason=failure.text)
    return error
