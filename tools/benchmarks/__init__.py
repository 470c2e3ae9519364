# SPDX-License-Identifier: Apache-2.0
"""Ours and stock `nova-scheduler` on the same machine in one run, over the real RPC.

A private MariaDB, RabbitMQ and Placement; hosts that exist in the databases only; agents that are real
`AgentCore` objects on the real broker, many in one process; and a client that calls `select_destinations`
as the conductor does. `tools/benchmark` is the command.

========== =================================================================================
file       subject
========== =================================================================================
command    the command line
contest    who is measured when: contestants and sizes, interleaved repeats
world      the private services, and one contestant's processes
fleet      the hosts: rows of Nova's and Placement's databases
client     a process that calls the scheduler (`callers` is its other end)
agents     a process that is many compute-agents (`agents_end` is its other end)
simulated  one of its nodes
mailboxes  the queues of all its nodes on one connection
readiness  has a scheduler learned what it can know
floor      writes to Placement without a scheduler
meters     CPU seconds, calls and statements between two moments
checks     is what the clients were told what Placement holds, and nowhere too much
results    numbers of one measurement, and what repeats of it come to
report     tables for people
machine    what all this was measured on
profiler   where a scheduler spends its time meanwhile, if asked for
========== =================================================================================
"""
