# SPDX-License-Identifier: Apache-2.0
"""The errors of the laboratory."""


class LabError(Exception):
    """The work cannot be done or continued: one line with the error, its place and the remedy."""
