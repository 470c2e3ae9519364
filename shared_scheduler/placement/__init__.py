# SPDX-License-Identifier: Apache-2.0
"""Placement: who is asked, who writes, and by which rules.

============  ==========================================================================
module        what
============  ==========================================================================
reply         pure: one HTTP answer and what it means, by Placement's error codes
operations    pure: every operation of Nova and what a conflict does to it, one table (seed 004)
policy        pure: consumer generations, what is done about what stands there
batches       pure: which queued writes go out together
doubtful      pure: writes whose outcome nobody knows
sharing       pure: what one host may take from shared storage
connection    a keystoneauth adapter, from ``[placement]`` or from an address and a token
client        the calls of the API that we use, typed
settle        one consumer to its end: write, compare, retry, take back
group_commit  threads: carries out ``WriteAllocation`` and ``DeleteAllocation``
questions     threads: answers ``AskCandidates``, ``AskFitting`` and ``LookUpConsumer``
mirror        provider trees of nodes without an agent
============  ==========================================================================
"""
