# SPDX-License-Identifier: Apache-2.0
"""Compares shared-scheduler with ``nova-scheduler`` on the same machine in one run, over the real RPC.

It uses a private MariaDB, RabbitMQ and Placement; hosts that exist in the databases only; simulated agents on the real
broker; and a client that calls ``select_destinations`` as the conductor does.

========= =================================================================================
module    subject
========= =================================================================================
command   the command line
contest   the order of measurements: contestants and sizes, interleaved repeats
environment  the private services, and the processes of one contestant
host_rows the hosts: rows of Nova's and Placement's databases
caller    a process that calls the scheduler
readiness waits until a scheduler has all data
floor     writes to Placement without a scheduler
meters    CPU seconds, calls and statements between two moments
checks    compares Placement with the answers to the clients, and finds over-commit
results   figures of one measurement, and of its repeats
report    tables
profiler  CPU profiles of a scheduler
========= =================================================================================
"""
