# SPDX-License-Identifier: Apache-2.0
"""The one error of this package."""


class CloudError(Exception):
    """Says in one line what was wrong, where, and what to do about it."""
