# SPDX-License-Identifier: Apache-2.0
"""Neutron's WSGI application for a server that loads ML2 and no service plug-in.

Neutron 29 reads `Port.port_forwardings`, a SQLAlchemy back reference that exists only after the model of port
forwardings is imported and the mappers are configured; with ML2 alone, neither happens.
"""

import neutron.db.models.port_forwarding  # type: ignore[import-not-found]  # noqa: F401
from neutron.wsgi.api import application  # type: ignore[import-not-found]
from sqlalchemy.orm import configure_mappers

configure_mappers()

__all__ = ["application"]
