# SPDX-License-Identifier: Apache-2.0
"""Placement: who is asked, who writes, and by which rules.

==================  ==========================================================================
module              what
==================  ==========================================================================
batches             pure: which queued writes go out together
consumer_conflicts  pure: what a consumer generation conflict does to each operation
in_doubt_writes     pure: writes whose outcome is not known
sharing             pure: what one host may take from shared storage
connection          one HTTP request, and what its answer means by Placement's error codes
client              the calls of the API that the scheduler uses, typed
allocation_writer   all steps of one consumer: write, compare, retry, delete
reconciler          whether an allocation of a write with an unknown outcome may be deleted
overcommit_check    reads the usage of a provider after a write that only Placement has judged
group_commit        threads: carries out ``WriteAllocation`` and ``DeleteAllocation``
questions           threads: answers ``AskCandidates``, ``AskFitting`` and ``LookUpConsumer``
mirror              provider trees of nodes without an agent
reader              the providers of one node and their consumers, for its agent
==================  ==========================================================================
"""
