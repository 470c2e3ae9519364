# SPDX-License-Identifier: Apache-2.0
"""Simulated compute hosts: the real core of compute-agent on a real broker, beside a simulated nova-compute.

======== =========================================================================
module   subject
======== =========================================================================
hosts    the hosts: names, hardware, their rows of Nova's and Placement's data
tracker  the simulated nova-compute: servers, and their usage
node     one host: agent core and tracker
reads    reads of Placement: from a stand-in at once, or from a real one in threads
builds   takes over the servers that an agent accepted, if no process orders builds; ends builds
process  a process of many hosts, each with its own queue on the broker
orders   the arguments of such a process
======== =========================================================================
"""
