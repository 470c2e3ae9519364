# SPDX-License-Identifier: Apache-2.0
"""Reads and writes of Placement.

==================  ==========================================================================
module              purpose
==================  ==========================================================================
consumer_conflicts  pure: how each operation handles a consumer generation conflict
conflict_patience   pure: for how long a write that conflicts is sent again
in_doubt_writes     pure: writes whose outcome is not known
overcommit_rules    pure: what follows from the check after a write that only Placement has judged
connection          one HTTP request, and the meaning of its answer by Placement's error codes
client              the calls of the API that the scheduler uses, typed
allocation_writer   all steps of one consumer: write, compare, retry, delete
reconciler          whether an allocation of a write with an unknown outcome may be deleted
overcommit_check    reads the usage of a provider after a write that only Placement has judged
batch_writer        threads: carries out ``WriteAllocation`` and ``DeleteAllocation``, in batches
questions           answers ``AskCandidates``, ``AskFitting``, ``AskConsumer`` and ``AskGroup``
mirror              provider trees of nodes without an agent
reader              the providers of one node and their consumers, for its agent
==================  ==========================================================================
"""
