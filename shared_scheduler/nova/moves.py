# SPDX-License-Identifier: Apache-2.0
"""Which move of a server a request is.  ``select_destinations`` is not told, but Nova's callers differ.

=================  ==============================================  =========================  ==========  ============
move               caller (nova 34)                                cell of the destination    ignored     alternates
=================  ==============================================  =========================  ==========  ============
rebuild            compute/api.py, rebuild: a scheduler hint       any                        any         no
evacuation         conductor/manager.py, rebuild_instance          that of the server         its host    no
live migration     conductor/tasks/live_migrate.py                 that of the server         its host    no
resize, cold       compute/api.py, resize, and                     that of the server; none   its host,   yes
migration          conductor/tasks/migrate.py                      if the host of another     or none
                                                                   cell is named
unshelve           conductor/manager.py, unshelve_instance         that of the server         none        no
a new server       conductor/manager.py, build                     none                       none        yes
=================  ==============================================  =========================  ==========  ============

Only a resize or cold migration may leave its cell (``allow_cross_cell_move``): this tells one that names the host of
another cell and ignores none (``[DEFAULT] allow_resize_to_same_host``) from a new server for which a host is named.

The migration record of Nova tells an evacuation from a live migration (``evacuation.py``).
"""

from __future__ import annotations

from shared_scheduler.decision.request import Request
from shared_scheduler.model.moves import Move


def move_of(request: Request, alternates: bool) -> Move | None:
    """The move; None of a new server, and if it cannot be told.  ``alternates``: whether the caller wants them."""
    if request.is_rebuild:
        return Move.REBUILD
    if request.move is not None:
        return request.move
    destination = request.destination
    in_cell = destination is not None and destination.cell is not None
    crosses_cells = destination is not None and destination.allow_cross_cell_move
    if len(request.instance_uuids) != 1 or not (in_cell or crosses_cells or request.ignore_hosts):
        return None
    if alternates:
        return Move.RESIZE
    if request.merge_with_existing or not in_cell:  # it may be an evacuation
        return None
    return Move.LIVE_MIGRATION if request.ignore_hosts else Move.UNSHELVE
