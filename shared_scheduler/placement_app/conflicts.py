# SPDX-License-Identifier: Apache-2.0
"""Answers with status 409, as Placement gives them."""

from __future__ import annotations

import webob
from oslo_log import log as logging
from placement import errors, util

LOG = logging.getLogger(__name__)


def refused(error: Exception) -> webob.exc.HTTPConflict:
    """The words of ``placement/handlers/allocation.py``."""
    LOG.warning("Allocations refused: %s", error)
    conflict = webob.exc.HTTPConflict(f"Unable to allocate inventory: {error}")
    conflict.json_formatter = util.json_error_formatter
    return conflict


def concurrent_update(request: webob.Request, error: Exception) -> webob.exc.HTTPConflict:
    """With the code that lets the client try again, or go on with another host."""
    # Placement's formatter reads it there
    request.environ[util.ENV_ERROR_CODE] = errors.CONCURRENT_UPDATE
    return refused(error)
