# SPDX-License-Identifier: Apache-2.0
"""A context for the reads of one cell.

It is created here and targeted once, because both ways of Nova affect other threads in Nova's own tests:
``target_cell`` waits for threads that use another cell, and switches the cell of code that has none of its own;
``get_admin_context`` may return a context that belongs to a nova-compute.
"""

from __future__ import annotations

from typing import Any

from nova import context as nova_context


def cell_context(mapping: Any) -> Any:
    """An administrator's context; ``mapping``: of the cell, or None."""
    context = nova_context.RequestContext(is_admin=True, overwrite=False)
    nova_context.set_target_cell(context, mapping)
    return context
