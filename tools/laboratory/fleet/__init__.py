# SPDX-License-Identifier: Apache-2.0
"""Simulated compute hosts: the real core of compute-agent on a real broker, beside a nova-compute that is imitated.

======== =========================================================================
module   subject
======== =========================================================================
hosts    what a host has: names, hardware, its rows of Nova's and Placement's data
tracker  the imitated nova-compute: servers, and what they use
node     one host: agent core, tracker, and reads of Placement
builds   builds what its agent accepted, where no one orders builds
process  a process of many hosts, each with its own queue on the broker
orders   what such a process is told
======== =========================================================================
"""
