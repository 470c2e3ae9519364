# SPDX-License-Identifier: Apache-2.0
"""The experiments of ``tools/lab``: a real cloud, benchmarks and faults, on one machine.

=============== ====================================================================================
room            subject
=============== ====================================================================================
``command``     the command itself; ``manual``: what ``--help`` prints; ``report``: what is printed
``cloud``       a real OpenStack cloud, and its parts one by one: MariaDB, RabbitMQ, Placement, Nova
``bench``       requests per second and their cost, alternating with nova-scheduler
``decide``      the decision in memory, compared with Nova's classes
``fire``        faults of a real broker under load
``chaos``       random operations and faults in a real cloud
``rounds``      requests that exactly fill the cloud, alternating with nova-scheduler
``groups``      members of server groups, requested or moved at the same moment
``mutate``      planted mistakes, and whether the tests notice them
``processes``   starts, checks, queries, stops and measures processes
``fleet``       simulated compute hosts with the real agent core
``placement``   a stand-in for Placement
``machine``     the description of the machine of a measurement
=============== ====================================================================================

``processes``, ``fleet`` and ``placement`` do not import the rooms that use them.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: processes of this project run its code, not the installed one."""
