# SPDX-License-Identifier: Apache-2.0
"""The options of Nova that the agent reads from nova.conf, with Nova's names and defaults.

Nova's own definitions come with 60 modules and their options, which would be in the memory of each agent.  A test
compares these with Nova's.
"""

from __future__ import annotations

import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg

PLACEMENT = "placement"
#: Nova's defaults for the adapter of Placement (nova/conf/utils.py)
ADAPTER_DEFAULTS = {"valid_interfaces": ["internal", "public"], "service_type": PLACEMENT}


def default_options() -> list[Any]:
    """Those of ``[DEFAULT]``."""
    return [
        cfg.HostDomainOpt("host", default=socket.gethostname()),
        cfg.StrOpt("pybasedir", default=_directory_of_nova()),
        cfg.StrOpt("state_path", default="$pybasedir"),
    ]


def register(conf: Any) -> None:
    """Register them, with those of ``[placement]``."""
    conf.register_opts(default_options())
    loading.register_session_conf_options(conf, PLACEMENT)
    loading.register_auth_conf_options(conf, PLACEMENT)
    adapter = loading.get_adapter_conf_options(include_deprecated=False)
    cfg.set_defaults(adapter, **ADAPTER_DEFAULTS)
    conf.register_opts(adapter, group=PLACEMENT)


def _directory_of_nova() -> str:
    """Where the package is installed; it is not imported."""
    found = find_spec("nova")
    return "" if found is None or found.origin is None else str(Path(found.origin).absolute().parents[1])
