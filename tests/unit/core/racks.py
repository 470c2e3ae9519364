# SPDX-License-Identifier: Apache-2.0
"""What requests ask whose servers have one label and are spread over racks."""

from __future__ import annotations

from shared_scheduler.decision.spread_request import label_uuid

#: the label "web" of the project, as a group
WEB = label_uuid("project", "web")
HINTS = {"shared_scheduler:spread": ("key=rack",), "shared_scheduler:label": ("web",)}
