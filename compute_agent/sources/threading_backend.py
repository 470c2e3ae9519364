# SPDX-License-Identifier: Apache-2.0
"""Nova's libraries in native threads, whatever ``concurrency_backend`` nova-compute itself runs with.

Call it before anything else of Nova is imported, as in Nova's own commands.
"""

from __future__ import annotations

import os

from nova import monkey_patch


def choose_threads() -> None:
    """Forbid eventlet.  Once a process."""
    os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"
    monkey_patch.patch(backend="threading")
