# SPDX-License-Identifier: Apache-2.0
"""How Sphinx builds the documentation: ``tox -e docs``, or ``sphinx-build -W doc/source doc/build``."""

import os
import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "ext"))
os.environ["COLUMNS"] = "100"  # argparse wraps the help of commands at this width

project = "shared-scheduler"
copyright = "the shared-scheduler contributors"
release = version = metadata.version("shared-scheduler")

extensions = ["openstackdocstheme", "oslo_config.sphinxext", "shared_scheduler_pages"]

#: a reference to a page, a term or an option that does not exist is a warning
nitpicky = True

html_theme = "openstackdocs"
html_theme_options = {"analytics_tracking_code": "", "display_badge": False}
openstackdocs_auto_name = False
openstackdocs_auto_version = False

#: (page, name, what it is, authors, section)
man_pages = [
    ("man/shared-scheduler", "shared-scheduler", "schedules servers of Nova from shared state", [], 8),
    ("man/shared-scheduler-manage", "shared-scheduler-manage", "shows and checks the schedulers", [], 8),
    ("man/shared-scheduler-status", "shared-scheduler-status", "checks before an upgrade", [], 8),
    ("man/shared-scheduler-stock", "shared-scheduler-stock", "runs nova-scheduler behind shared-scheduler", [], 8),
    ("man/compute-agent", "compute-agent", "reports the state of a node, and judges claims", [], 8),
    ("man/compute-agent-status", "compute-agent-status", "shows the state of the agent of this machine", [], 8),
]
