# SPDX-License-Identifier: Apache-2.0
"""Errors of settings and requests.  Each message names what is wrong and what to do about it."""

from __future__ import annotations


class DecisionError(ValueError):
    """The request cannot be decided, on any host: the caller gets this text."""


class UnknownFilterError(ValueError):
    """A filter is enabled that neither we nor Nova's loader know; the text names it."""


class UnknownWeigherError(ValueError):
    """A weigher is enabled that neither we nor Nova's loader know; the text names it."""
