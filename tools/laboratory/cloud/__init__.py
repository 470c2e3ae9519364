# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack compute cloud on one machine, for tests and for manual use.

Everything is private to one data directory and listens on loopback only: MariaDB, RabbitMQ, Keystone,
Glance, Neutron's API, Placement, Nova's API and conductors, schedulers (ours, stock, or both), and any
number of nova-compute processes with a fake hypervisor, each with or without its compute-agent.

`tools/lab cloud` is the command, `cloud.Cloud` is the same for Python.
"""
