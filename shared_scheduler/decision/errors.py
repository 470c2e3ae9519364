# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with settings or a request, said so that somebody can do something about it."""

from __future__ import annotations


class DecisionError(ValueError):
    """The request cannot be decided, on any host: the caller gets this text."""


class UnknownFilterError(ValueError):
    """A filter is enabled that neither we nor Nova's loader know; the text names it."""


class UnknownWeigherError(ValueError):
    """A weigher is enabled that neither we nor Nova's loader know; the text names it."""
