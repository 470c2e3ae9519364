# SPDX-License-Identifier: Apache-2.0
"""Errors of settings and requests.  Each message names the mistake and how to correct it."""

from __future__ import annotations


class DecisionError(ValueError):
    """The request cannot be decided on any host; the caller gets this text."""


class ImageUnreadError(DecisionError):
    """A part of the request could not be read, without which it must not be decided."""


class UnknownFilterError(ValueError):
    """An enabled filter is neither native nor found by Nova's loader; the text names it."""


class UnknownWeigherError(ValueError):
    """An enabled weigher is neither native nor found by Nova's loader; the text names it."""
