# SPDX-License-Identifier: Apache-2.0
"""What the scheduler does with the requests of nova-conductor.  The mode changes while the scheduler runs.

=======  =====================  ========================================  ==================
mode     topic ``scheduler``    a request                                 Placement
=======  =====================  ========================================  ==================
observe  not consumed           -                                         is read
shadow   consumed               is passed on to nova-scheduler; ours      is read
                                decides too, and both are compared
active   consumed               is decided by ours                        is read and written
=======  =====================  ========================================  ==================

A request ends under the mode in which it began.  One that was taken from the queue before the scheduler changed to
``observe`` is handled as in the mode before, because nobody else will get it.
"""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """The values of the option ``mode``."""

    OBSERVE = "observe"
    SHADOW = "shadow"
    ACTIVE = "active"


class CurrentMode:
    """The mode now.  One thread changes it; any thread reads it."""

    def __init__(self, mode: Mode) -> None:
        self.value = mode
        self._handles_as = mode

    def change(self, mode: Mode) -> None:
        """Enter a mode; requests that begin from now on are handled in it."""
        self.value = mode
        if mode is not Mode.OBSERVE:
            self._handles_as = mode

    @property
    def serves(self) -> bool:
        """Whether requests are taken from Nova's topic."""
        return self.value is not Mode.OBSERVE

    @property
    def passes_on(self) -> bool:
        """Whether a request that begins now is passed on to nova-scheduler."""
        return self._handles_as is Mode.SHADOW

    @property
    def writes(self) -> bool:
        """Whether Placement may be written without a request, to clean up."""
        return self.value is Mode.ACTIVE
