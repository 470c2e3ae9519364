# SPDX-License-Identifier: Apache-2.0
"""The entry point for uwsgi, Apache and other WSGI servers: deploy it in the place of ``placement.wsgi.api``."""

from __future__ import annotations

from placement import wsgi

from shared_scheduler.placement_app.assembly import assemble

application = assemble(wsgi.init_application)
