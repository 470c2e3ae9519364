# SPDX-License-Identifier: Apache-2.0
"""A context for the reads of one cell.

It is made here and targeted once, because both other ways of Nova touch other threads in Nova's own tests:
``target_cell`` waits for whoever is in another cell and switches the cell of code that has none of its own, and
``get_admin_context`` may return a context that belongs to a nova-compute.
"""

from __future__ import annotations

from typing import Any

from nova import context as nova_context


def cell_context(mapping: Any) -> Any:
    """An administrator's context; ``mapping``: of the cell, None: of none."""
    context = nova_context.RequestContext(is_admin=True, overwrite=False)
    nova_context.set_target_cell(context, mapping)
    return context
