# SPDX-License-Identifier: Apache-2.0
"""A request that failed becomes an exception that the conductor knows.

The RPC layer restores only classes of ``nova.exception``.  Anything else would arrive as RemoteError, which
the conductor handles differently (contract 1.6).  The texts are Nova's.  The details of the decision are in
its record and in the log, where users do not see them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from nova import exception
from nova.i18n import _

from shared_scheduler.core.effects import Fail, FailureCode

LOG = logging.getLogger(__name__)

#: Nova gives no reason when Placement has no candidate, and treats a Placement that does not answer in the same way.
WITHOUT_REASON = frozenset({FailureCode.NO_CANDIDATES, FailureCode.PLACEMENT_UNREACHABLE})

#: Nova's reason when a consumer was changed during the claim (``SchedulerReportClient.claim_resources``)
CONFLICT = "another process changed the consumer %s after the report client read the consumer state during the claim "


def not_enough_hosts() -> BaseException:
    """Nova's error when no host is left."""
    error: BaseException = exception.NoValidHost(reason=_("There are not enough hosts available."))
    return error


def exception_of(failure: Fail) -> BaseException:
    """What to raise for a failed request."""
    error: BaseException
    if failure.code is FailureCode.CONSUMER_CONFLICT:
        consumers = ",".join(uuid for uuid in failure.request.instance_uuids if uuid)
        error = exception.AllocationUpdateFailed(consumer_uuid=consumers, error=CONFLICT % consumers)
    elif failure.code in WITHOUT_REASON:
        error = exception.NoValidHost(reason="")
    else:
        error = not_enough_hosts()
    return error


@contextmanager
def internal_errors_hidden() -> Iterator[None]:
    """Errors of Nova pass; any other is logged, and the conductor gets Nova's error for a request without a host.

    Users can read the text of an exception, and the traceback in which it arrives, in the faults and actions of
    their servers.

    :raises NoValidHost: when the error is not Nova's
    """
    try:
        yield
    except exception.NovaException:
        raise
    except Exception:
        LOG.exception("A request failed for an internal error")
        raise not_enough_hosts() from None
