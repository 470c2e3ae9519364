# SPDX-License-Identifier: Apache-2.0
"""Ours and stock ``nova-scheduler`` on the same machine in one run, over the real RPC.

A private MariaDB, RabbitMQ and Placement; hosts that exist in the databases only; simulated agents on the real broker;
and a client that calls ``select_destinations`` as the conductor does.

========= =================================================================================
module    subject
========= =================================================================================
command   the command line
contest   who is measured when: contestants and sizes, interleaved repeats
world     the private services, and the processes of one contestant
host_rows the hosts: rows of Nova's and Placement's databases
client    a process that calls the scheduler
readiness whether a scheduler has learned all that it can know
floor     writes to Placement without a scheduler
meters    CPU seconds, calls and statements between two moments
checks    whether Placement holds what the clients were told, and no provider too much
results   figures of one measurement, and of its repeats
report    tables
profiler  where a scheduler spends its time, if asked for
========= =================================================================================
"""
