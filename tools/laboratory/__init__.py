# SPDX-License-Identifier: Apache-2.0
"""What ``tools/lab`` runs: a real cloud, benchmarks and faults, on one machine.

=============== ====================================================================================
room            subject
=============== ====================================================================================
``command``     the command itself; ``manual``: what ``--help`` prints; ``report``: what is printed
``cloud``       a real OpenStack cloud, and its parts one by one: MariaDB, RabbitMQ, Placement, Nova
``bench``       requests per second and their cost, ours and nova-scheduler in turns
``decide``      the decision in memory, beside Nova's classes
``fire``        faults of a real broker under load
``chaos``       random operations and faults in a real cloud
``rounds``      requests that just fit, ours and nova-scheduler in turns
``groups``      members of server groups, requested or moved at the same moment
``processes``   start, watch, ask, stop and measure processes
``fleet``       simulated compute hosts with the real agent core
``placement``   a stand-in for Placement
``machine``     what a figure was measured on
=============== ====================================================================================

``processes``, ``fleet`` and ``placement`` know nothing of the rooms that use them.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: processes of ours run its code, whatever is installed."""
