# SPDX-License-Identifier: Apache-2.0
"""The errors of the laboratory."""


class LabError(Exception):
    """The work cannot be done or cannot go on: says in one line what is wrong, where, and what to do about it."""
