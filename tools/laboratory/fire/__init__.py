# SPDX-License-Identifier: Apache-2.0
"""Faults of a real message broker, under a stream of requests.

=========== ==================================================================================
module      subject
=========== ==================================================================================
faults      the faults, with their begin and end
fault_effects  the effect that each fault must have
environment the broker and all processes
proxy       a partition of the network on one machine
scheduler   a process that is a scheduler
flavor      the one flavor of all requests
pace        intervals and timeouts
stream      requests, and the servers that result from them
observer    the time at which a fault is noticed, and at which everything has recovered
drill       the faults one after the other, and the comparison of all records after each
results     the figures of a run, and their tables
command     the command line
=========== ==================================================================================
"""
