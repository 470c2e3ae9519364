# SPDX-License-Identifier: Apache-2.0
"""Definitions of the terms that ``shared-scheduler-manage`` prints; they are defined nowhere else.

``status --help`` and ``why --help`` print these definitions, and the glossary of the documentation is generated from
them.  ``tests/unit/cmd/test_terms.py`` fails when the code prints a state, a reason or a counter that is not here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

WIDTH = 100


@dataclass(frozen=True, slots=True)
class TermGroup:
    """Terms that belong together; ``where`` names the outputs that print them."""

    title: str
    where: str
    terms: Mapping[str, str]


GENERAL = TermGroup("Terms", "Used by all commands, in the log and in these pages.", {
    "agent": "The process compute-agent beside a nova-compute, or the same code inside nova-compute (embedded). It "
             "publishes the state of its node and judges claims.",
    "alternate": "A host that is returned after the selected host. nova-conductor uses it when the build fails.",
    "assume": "Count a claim in the scheduler's own table before the agent and Placement have accepted it.",
    "broker": "A RabbitMQ server. The message queue of a cell is one broker or a cluster of them.",
    "cell": "A cell of Nova. Each cell has one state channel on its message queue.",
    "claim": "A request of a scheduler to reserve resources of one node for one server or migration.",
    "confirm": "Mark an assumed claim as written to Placement.",
    "consumer": "A server or a migration that holds allocations in Placement.",
    "decision": "One pass over the host table for one server: filters, weights and the selected host.",
    "digest": "A 64-bit hash of the leaves, consumers and pending claims of a node.",
    "domain": "A value of a key of spreading, with all hosts that have it, for example a rack.",
    "epoch": "The number of a run of an agent. It increases with each start, and when a scheduler asks the agent to "
             "exceed an epoch. Messages of an older epoch change nothing.",
    "forget": "Remove an assumed claim from the table.",
    "gap": "One or more sequences that were not received although a later one was.",
    "generation": "The number by which Placement detects that a consumer or provider was changed since it was read.",
    "heartbeat": "A message of an agent that follows its last change after 15 seconds, and itself after 43 to 48. It "
                 "names the newest sequence and the digest, so a scheduler detects a lost last message and a copy that "
                 "differs.",
    "Hello": "A message of a scheduler or an agent that has started. A scheduler repeats it to show that it is alive.",
    "host": "A nova-compute service, by the name in its service record.",
    "host state": "What a scheduler knows of one node; one row of the host table.",
    "increment": "A message of an agent with the values that changed. Values are absolute, not differences.",
    "label": "A name that a request gives its server by shared_scheduler:label. The servers of a project with one "
             "label are spread together.",
    "leaf": "One named value of a node, for example cn.free_ram_mb.",
    "node": "A compute node, by its uuid. It is also the root resource provider in Placement.",
    "overlay": "The claims of this scheduler that the state published by the agent does not include yet.",
    "quarantine": "A node that refused refusals_max claims in a row is selected for quarantine_s seconds only when no "
                  "other node takes the claim. The same holds for a node whose agent is late, until it answers; but "
                  "a member of a soft group prefers no node with more or fewer members to it.",
    "reason": "Why a host was not selected: a code, and the numbers that were compared.",
    "record": "What a scheduler stores of a decision (the request, counts per reason, attempts, result and times), of "
              "the end of a build, of a comparison in mode shadow, of a change of what it knows of a node, or of a "
              "change of allocations by another writer.",
    "resync": "A request of a scheduler to an agent: send the messages after a sequence again, or a snapshot.",
    "sequence": "The number of a message of one agent within its epoch.",
    "skew": "The number of counted servers of a domain minus that of the domain with the fewest.",
    "slice": "The part of the hosts that one of several schedulers prefers among hosts of nearly equal weight.",
    "snapshot": "A message of an agent with the complete state of its node.",
    "state channel": "The queues and exchanges of a cell's message queue over which schedulers and agents exchange "
                     "messages. Nova's own RPC does not use them.",
    "tap": "The part of this project inside nova-compute that gives the agent each change of the resource tracker.",
    "unresponsive": "An agent that did not answer a claim within verdict_timeout_s, answered it in an older epoch, or "
                    "is not connected to the message queue. "
                    "Its node is stale until the agent is heard again, and provisional if that takes longer than 6 "
                    "seconds.",
    "verdict": "The answer of an agent to a claim: accepted, or refused with a reason.",
    "window": "The part of a scheduler that puts the messages of one node in order and detects gaps.",
})  # fmt: skip

FRESHNESS = TermGroup("Freshness of a node", "status: the line nodes and the column freshness.", {
    "fresh": "An agent publishes the state of the node, and no message is missing.",
    "suspect": "A message of the agent may be missing, or the digests differ. The node may be selected; the agent "
               "judges the claim, so the selection is safe.",
    "stale": "The copy cannot be used until the agent sends a snapshot, or the agent is unresponsive. The node is not "
             "selected.",
    "provisional": "No agent publishes the state of the node. It is read from Nova's databases and Placement. The node "
                   "may be selected; Placement alone judges the claim.",
})  # fmt: skip

NOT_CHOOSABLE = TermGroup("Why a node is not choosable", "status --nodes: the column why_not; why: reasons.", {
    "no_service_record": "Nova's database has no nova-compute service for the host of the node.",
    "never_reported": "nova-compute has not reported the resources or the name of the node yet.",
    "cell_disabled": "The cell is disabled. Its hosts are selected only when the request names the cell.",
    "stale": "The node is stale: a snapshot of the agent is awaited, or the agent is unresponsive.",
    "agent_not_ready": "The agent has no connection to nova-compute, or nova-compute has not finished its first audit.",
    "forced_down": "An administrator forced the service down.",
    "disabled": "An administrator or nova-compute disabled the service.",
    "down": "The service record is older than [DEFAULT] service_down_time.",
    "quarantined": "The node is in quarantine: it is selected only when no other node takes the claim.",
})  # fmt: skip

COLUMNS = TermGroup("Fields of status", "status and status --nodes.", {
    "mode": "observe: serves no request; shadow: passes requests on to nova-scheduler and compares; active: serves "
            "requests.",
    "nodes": "Number of nodes in the host table, by freshness.",
    "under way": "Requests of nova-conductor that are not answered yet, and claims that have not ended yet.",
    "cells": "State channel of each cell: connected to the cell's message queue or not, for how long, and how long ago "
             "the last message arrived.",
    "quarantine": "Nodes that refused claims again and again, or whose agents are late: for quarantine_s seconds they "
                  "are selected only when no other node takes the claim.",
    "silent": "Agents that this scheduler has heard since its start and that do not report now: they were stopped, or "
              "their machine or its connection is down. Their nodes are provisional.",
    "release": "Release of this scheduler, and how many live schedulers and reporting agents have which release; "
               "unknown for one whose release does not report it.",
    "host": "Name of the host.",
    "freshness": "How the state of the node is kept current; see above.",
    "agent": "heard: an agent publishes the state of the node; silent: it did since this scheduler started, and does "
             "not now; none: it was never heard.",
    "choosable": "Whether a request may select the node at present.",
    "why_not": "Why it may not; see above. In brackets: the reason that Nova keeps of a disabled service.",
    "sequence": "Sequence of the newest message of the agent that was applied; 0 without an agent.",
    "heard_ago_s": "Age of the last message of the agent of the node; empty if it has never been heard.",
    "outstanding": "Claims of this scheduler that are in the overlay: the state that the agent has published does not "
                   "include them yet.",
    "pending": "Claims of any scheduler that the agent accepted and nova-compute does not count yet.",
    "used": "Sum of the allocations of the root provider by resource class, the overlay included.",
})  # fmt: skip

REASONS = TermGroup(
    "Reasons of a decision",
    "why and the log: the code under which hosts that were not selected are counted. A filter counts under the name of "
    "its class, for example NUMATopologyFilter.", {
    "root_traits": "The root provider lacks a required trait or has a forbidden one.",
    "traits": "The provider that would give the resources lacks a required trait or has a forbidden one.",
    "aggregates": "The root provider is in none of the required aggregates, or in a forbidden one.",
    "in_tree": "The request is for another provider tree.",
    "no_room": "Followed by a resource class. The node has too little of it, or the amount violates min_unit, max_unit "
               "or step_size.",
    "group_traits": "No provider with the resources of a numbered group has the traits of that group.",
    "placement": "None of several alternative resource requests fits.",
    "cell": "The request is for another cell.",
    "requested_destination": "The request is for another host or node.",
    "ignore_hosts": "The request excludes the host.",
    "force_hosts": "The request forces other hosts.",
    "force_nodes": "The request forces other nodes.",
    "tried": "The host was tried for this server before.",
    "spread": "A hard constraint of shared_scheduler:spread: the host has no single value of the key, or its domain "
              "would have more servers than max_skew above the domain with the fewest.",
    "first_instance": "A filter that runs once per request rejected the host for the first server of the request.",
})  # fmt: skip

ATTEMPTS = TermGroup(
    "Outcome of an attempt",
    "why, why-not and story: the lines of hosts that were tried. A filter of Nova that rejected the selected host "
    "stands here under the name of its class.", {
    "written": "The agent accepted the claim, if there is one, and Placement has the allocation.",
    "no_capacity": "The agent or Placement: the node has not enough of a resource.",
    "no_inventory": "The agent: the node does not have this resource class.",
    "group_full": "The agent: as many members of the anti-affinity group as may be on one host are on the node.",
    "group_changed": "The agent: more members of the soft group are on the node than the decision saw. The server is "
                     "decided once more.",
    "group_apart": "The allocation was written and deleted again, because other members of the server group were "
                   "placed elsewhere at the same moment.",
    "spread_too_far": "The allocation was written and deleted again, because servers that were placed at the same "
                      "moment made a domain exceed max_skew of shared_scheduler:spread.",
    "node_gone": "The allocation was written and deleted again, because a node of a request with a hard spreading "
                 "constraint was deleted before the answer.",
    "topology": "The agent: NUMA cells, pages or PCI devices do not fit.",
    "not_authoritative": "The agent: it does not know the state of the node at present.",
    "wrong_node": "The agent: the claim is for another node.",
    "expired": "The agent: the claim is of an epoch that has ended, or arrived after the scheduler had stopped "
               "waiting.",
    "too_many_claims": "The agent: it has reached its bound of pending claims.",
    "released": "The request did not need the claim any more.",
    "malformed": "The agent: the claim is not valid.",
    "timed_out": "The agent did not answer within verdict_timeout_s.",
    "undelivered": "The message queue returned the claim, because the agent is not connected.",
    "late": "The agent did not answer in the usual time (at least 180 ms, for a member of a soft group up to a "
            "second), so another host was tried.",
    "provider_conflict": "Placement: other writes changed the provider each time, or an earlier write of the server "
                         "got no answer and may still be carried out; the retries are used up.",
    "consumer_conflict": "Placement: the consumer has other allocations than expected. The request fails.",
    "unknown_provider": "Placement: it does not know the provider.",
    "host_changed": "Nova: the nova-compute service of the host was disabled, forced down or lost after the decision.",
    "unreachable": "Placement did not answer, or its answer was lost.",
    "denied": "Placement refuses the credentials of the scheduler. The request fails.",
    "not_served": "No Placement could be reached at its address, or another service answered there, so nothing was "
                  "written. The request is decided again after a pause, or fails when its time is over or many "
                  "requests wait.",
    "never_sent": "Not sent to Placement: the write waited until its deadline, or too many writes waited. The request "
                  "is decided again after a pause, or fails when its time is over or many requests wait.",
    "rejected": "Placement: the request of the scheduler is not valid.",
    "not_written": "The allocation was not written.",
    "deleted": "The allocation was deleted again, because the request did not need it any more, or because Placement "
    "did not answer the write in time.",
    "left_alone": "The allocation was written; another writer has changed it since, so it was not deleted.",
    "abandoned": "The allocation could not be deleted so far; the scheduler retries in the background.",
    "refused": "The agent refused the claim without a reason code that this release knows; code is what it named.",
    "filter_failed": "A filter of Nova raised an error for this host; the log has it.",
    "no_candidate": "The filters of Nova left none of the allocations that Placement allows on the host.",
    "unreadable": "The NUMA cells or devices that the host reports cannot be read; the log has the error.",
    "too_many_arrangements": "Nova would need too long to try how the cells of the guest fit on the NUMA cells of the "
                             "host.",
})  # fmt: skip

FAILURES = TermGroup("Result of a request", "why and records; the log.", {
    "placed": "Every server of the request has a host.",
    "no_valid_host": "No host passes, or no host accepted the claim within attempts_max attempts.",
    "no_candidates": "No host has the resources, traits and aggregates: Placement has no candidate at all.",
    "consumer_conflict": "Placement has other allocations for the server than expected.",
    "timed_out": "The request was not finished within request_timeout_s.",
    "draining": "The scheduler is stopping and takes no new requests.",
    "placement_unreachable": "Placement did not answer, was not reached, or refused the credentials.",
    "overloaded": "More than requests_max requests are under way, or Placement does not keep up with the writes.",
    "no_time": "Placement cannot write so many servers before the time of the request is over; what was written until "
               "that was known is deleted.",
    "bad_request": "The request cannot be decided; the text says why.",
    "group_unsettled": "Where the other members of the server group, or the servers of the label, are could not be "
                       "read, or they were placed elsewhere again and again.",
    "image_unread": "The properties of the image that ask for spreading could not be read in time, and "
                    "spread_image_properties is required; the text has the reason.",
})  # fmt: skip

SOURCES = TermGroup("Facts that compare reads", "compare: the word after the node in a line of differences.", {
    "node": "The host of the node; node name: its name (hypervisor_hostname). Authority: Nova's database.",
    "service": "The flags of the service record: disabled, forced_down, up. Authority: Nova's database.",
    "member": "A server that nova-compute counts on the node; the agent counts those of its pending claims too "
              "(status --nodes). Authority: the agent, otherwise Nova's database.",
    "number": "A value that nova-compute reports; the agent adds its pending claims. Authority: the agent, otherwise "
              "Nova's database.",
    "allocation": "What a consumer holds of a provider. Authority: Placement.",
    "inventory": "Total, reserved, units, step and ratio of a resource class. Authority: Placement.",
    "traits": "The traits of a provider. Authority: Placement.",
    "aggregates": "The aggregates of a provider. Authority: Placement.",
    "position": "Epoch and sequence. Authority: the agent.",
})  # fmt: skip

RESYNCS = TermGroup("Result of resync", "resync: the columns result, before, after and quarantine.", {
    "read": "The agent has sent its whole state, or the databases and Placement were read, and the row was replaced.",
    "waiting": "Not yet. The scheduler goes on asking; status --nodes shows when it has heard the agent.",
    "too_soon": "Nothing was asked: the host was read by this command less than ten seconds ago, or many hosts were.",
    "unknown_host": "The databases that this scheduler reads have no compute node of this host.",
    "before": "Epoch and sequence of the row before the command; databases if no agent had published it.",
    "after": "The same of the row now. They may be equal: the row was replaced although no message was missing.",
    "ended": "The node was in quarantine. Its row has been read, so the quarantine is over.",
})  # fmt: skip

COUNTERS = TermGroup(
    "Counters",
    "status: counts since the process started; a counter of 0 is not printed, and of the others the first sentence of "
    "the definition. Those of usual work are printed with --counters only. A counter with a name in CamelCase, for "
    "example RequestArrived, counts the events of that name that the scheduler processed.", {
    "requests_answered": "Requests that were answered with hosts.",
    "requests_failed": "Requests that ended without a host: none was found, or the request failed.",
    "requests_previewed": "Requests that were decided for a comparison in mode shadow. Nothing was claimed for them.",
    "comparisons": "Requests of mode shadow for which both answers were compared.",
    "comparisons_dropped": "Requests of mode shadow that were passed on and not compared, because too many comparisons "
                           "waited.",
    "comparison_failures": "Requests of mode shadow that were passed on, but not compared. This is a bug; see the log.",
    "outcomes_unheard": "Results whose caller had stopped waiting.",
    "answers_unheard": "Unheard results that had allocations; the scheduler deletes the allocations.",
    "core_failures": "Events during which the scheduler's core raised an exception. This is a bug; see the log.",
    "effect_failures": "Effects that could not be carried out. This is a bug; see the log.",
    "records_dropped": "Records that were dropped because the file or database is slower than the decisions.",
    "records_lost": "Records that are missing in the file or the database, because it could not be written.",
    "received_heartbeat": "Heartbeats received.",
    "node_records_left_out": "Snapshots, resyncs and silent agents that were not recorded: there were too many.",
    "builds_left_out": "Ends of builds beyond those of one host that are recorded: 128 at once, or one a second.",
    "builds_of_past_epochs": "Ends of builds that were dropped, because the agent has begun another epoch since.",
    "builds_recorded": "Ends of builds on nodes that this scheduler has recorded.",
    "builds_read": "Ends of builds that no agent has reported, and that this scheduler has read from Nova's databases.",
    "builds_forgotten": "Placed servers whose end was not found in an hour, or that were too many to wait for.",
    "received_buildresult": "Ends of builds received.",
    "received_claim": "Claims received. A scheduler ignores them.",
    "received_leave": "Messages of agents that stopped.",
    "received_hello": "Messages of agents and schedulers that started, and of schedulers that are alive.",
    "received_increment": "Increments received.",
    "received_release": "Releases received. A scheduler ignores them.",
    "received_resync": "Resync requests received. A scheduler ignores them.",
    "received_snapshot": "Snapshots received.",
    "received_verdict": "Verdicts received.",
    "sent_heartbeat": "Heartbeats sent. Only agents send them.",
    "sent_buildresult": "Ends of builds sent. Only agents send them.",
    "sent_claim": "Claims sent to agents.",
    "sent_leave": "Messages sent by an agent that stopped.",
    "sent_hello": "Messages sent by a scheduler or an agent that started, and by a scheduler that is alive.",
    "sent_increment": "Increments sent. Only agents send them.",
    "sent_release": "Releases sent to agents.",
    "sent_resync": "Resync requests sent to agents, and questions whether they are there.",
    "sent_snapshot": "Snapshots sent. Only agents send them.",
    "sent_verdict": "Verdicts sent. Only agents send them.",
    "returned": "Messages to agents that the message queue returned, because the agents are not connected.",
    "outbox_full": "Messages that were dropped before they were sent, because the queue to the broker was full.",
    "cell_of_node_unknown": "Messages of nodes whose cell is not known yet, dropped.",
    "messages_rejected": "Messages that were dropped because they are not valid; one of the next eight counters says "
                         "why.",
    "MalformedMessage": "Messages that cannot be decoded.",
    "MessageTooLarge": "Messages over the size limit.",
    "UnknownVersion": "Messages of another major version of the protocol.",
    "UnknownMessageType": "Messages of a type that this release does not know.",
    "BadSignature": "Messages that are not signed with an accepted key.",
    "UnknownSender": "Messages without a valid envelope of host keys, dropped because of host_keys = require.",
    "WrongSender": "Messages whose sender is known and may not send them: a compromised host, or one that has the keys "
                   "or the node uuid of another host. The log names the sender.",
    "SenderTooFast": "Messages beyond what a scheduler accepts of one host, dropped. The log names the host.",
    "unsendable": "Messages that exceed a limit of the protocol and were not sent.",
    "without_host_key": "Messages whose sender is not known, accepted because of host_keys = accept.",
    "tolerated": "Messages with a missing or wrong signature that were accepted because of signing = warn.",
    "messages_not_for_schedulers": "Messages that only agents use, ignored.",
    "messages_of_too_many_nodes": "Messages of nodes beyond nodes_max, ignored.",
    "messages_of_unlisted_nodes": "Messages of nodes that no database has, beyond those that a host may name, ignored.",
    "rows_of_too_many_nodes": "Database rows of nodes beyond nodes_max, ignored.",
    "messages_of_second_agents": "Messages of a node in the name of another host than the database has: two agents "
                                 "have one node uuid, usually because a machine was cloned. Dropped.",
    "ticks_postponed": "Timers of nodes that rang while messages waited unread, and were postponed, for five minutes "
                       "at most: they make no agent count as silent, and ask none. Grows while a scheduler starts in "
                       "a large cloud; if it grows all the time, the scheduler has too little CPU time.",
    "messages_unusable": "Messages with a leaf of a wrong type, dropped.",
    "rows_too_large": "Rows to which increments have added more than a snapshot can hold; a snapshot is asked for.",
    "resyncs_without_host": "Resync requests that were not sent, because the host of the node is not known yet.",
    "reads_ignored": "Database rows of nodes whose agent publishes their state, ignored.",
    "reads_overtaken": "Database rows that were read before the ones in use, ignored.",
    "reads_unusable": "Database rows with a value of a wrong type, ignored.",
    "refused": "Claims that an agent refused. The request goes on with another host.",
    "conflicts": "Writes to Placement that failed because others came first (provider_conflict, consumer_conflict).",
    "quarantined": "How often a node was put into quarantine because of refusals.",
    "late": "Claims that an agent did not answer in the usual time, so that another host was tried.",
    "agents_gone": "Messages to an agent that the message queue returned, because the agent is not connected.",
    "verdicts_missed": "Claims that an agent did not answer in time.",
    "verdicts_of_others": "Verdicts on a claim that came in the name of another node than the claim's, ignored.",
    "epochs_of_the_past": "Claims that an agent judged in an older epoch than the one the claim was decided on.",
    "increments_applied": "Increments that changed a row.",
    "snapshots_applied": "Snapshots that replaced a row.",
    "duplicates": "Messages that had been applied before.",
    "old_epochs": "Messages of an older epoch.",
    "old_snapshots": "Snapshots older than the copy.",
    "early": "Messages that arrived before a missing one and were held.",
    "early_dropped": "Early messages that were dropped because the buffer was full.",
    "gaps": "Gaps detected.",
    "new_epochs": "New epochs detected: an agent was restarted.",
    "digests_equal": "Heartbeats whose digest matched the copy.",
    "digests_different": "Heartbeats whose digest did not match the copy.",
    "resyncs_asked": "Resync requests sent.",
    "resyncs_ordered": "Nodes that were read anew because of the command resync.",
    "resyncs_ordered_too_soon": "Hosts that the command resync named again too soon, ignored.",
    "resyncs_delayed": "Resync requests that had to wait for their turn.",
    "epochs_given_up": "Epochs so high that no agent has them, given up after a silence: somebody sends messages in "
                       "the name of agents. Configure host_keys.",
    "epochs_in_doubt": "New epochs after which the one before was heard again, so that the agent was asked which one "
                       "is its last: late messages, or an agent that has lost its state directory while its clock "
                       "was set back.",
    "asked_whether_there": "Agents whose heartbeat was overdue and that were asked whether they are there.",
    "foreign_changes_left_out": "Changes of allocations by other writers that were not examined, because one host told "
                                "more than 128 at once, or one per second.",
    "silences": "Agents that were not heard for agent_silent_after_s.",
})  # fmt: skip

FOREIGN_CHANGES = TermGroup(
    "Foreign changes",
    "status --foreign-changes: allocations that another writer changed since a scheduler wrote them.", {
    "seen_at": "When the scheduler found the change, in UTC; the change itself was earlier.",
    "kind": "What the change was, as far as Placement and Nova show it; defined below.",
    "consumer": "The server (or migration) whose allocations were changed.",
    "host": "The host whose report showed the change.",
    "seen_by": "What found it: report (of an agent, or the read of a node without one), or an action of the scheduler: "
               "new (a first write), merge (an evacuation) or delete.",
    "before": "Generation and allocations that the scheduler's last write left, or that its table showed.",
    "after": "Generation and allocations that Placement had instead; without a generation those that the migration of "
             "the server has taken over.",
})  # fmt: skip
CHANGE_KINDS = TermGroup(
    "Kinds of foreign changes", "status --foreign-changes; records: the result of a record of kind foreign.", {
    "removed": "All allocations were removed, twice seen, although Nova neither deletes nor moves the server: its "
               "resources are given to others. nova-manage placement heal_allocations restores them.",
    "changed": "Other amounts or providers, as when a port or an accelerator is added, or an operator corrects them.",
    "rewritten": "The same amounts, written again by another writer.",
    "operation": "An operation of Nova was under way, or has moved the server: expected.",
    "deleted": "Nova has deleted the server: expected.",
    "unexamined": "Nova's databases or Placement did not answer, too many changes were found at once, or the scheduler "
                  "has stopped.",
})  # fmt: skip
READS = TermGroup(
    "Reads of the databases and Placement",
    "status --reads: the page Reads of the databases and Placement describes each source.", {
    "source": "What is read; a row of the registry.",
    "of": "The database, or Placement.",
    "key": "Whether the source is read once for the cloud, once per cell, once per node or once per question.",
    "every_s": "Seconds between two regular reads; empty: read on request only.",
    "decision_waits": "Whether a decision waits for a read: never, always, while few nodes have no agent (or an "
                      "agent reports a new node), or if nothing is written for the request.",
    "refusal_waits": "Whether a read is awaited before no valid host is returned: as decision_waits.",
    "keys": "Number of keys that are read or wait to be read.",
    "oldest_s": "Age of the oldest key that is read regularly, from the beginning of its newest read that succeeded.",
    "due": "Keys that should have been read by now.",
    "failing": "Keys whose last read failed.",
    "reads": "Reads since the process started.",
    "failures": "Failed reads since the process started.",
    "ms_each": "Average duration of a read in milliseconds.",
    "queries_each": "Average number of SQL queries and calls of Placement per read.",
    "rows_each": "Average number of rows, or of items in the answers of Placement, per read.",
})  # fmt: skip

BUILDS = TermGroup("Ends of builds", "why, why-not, records and story: the result of a build on a node.", {
    "active": "nova-compute has built the server.",
    "failed": "nova-compute could not build the server. The reason is its error, with the errors that caused it.",
})  # fmt: skip

RECORD_COLUMNS = TermGroup("Columns of records", "records: the table of records last.", {
    "at": "When the decision was made, the build ended, or the change of the node was seen, in UTC.",
    "kind": "What is recorded. decision: a request was decided; build: a build on a node ended; node: what a scheduler "
            "knows of a host has changed; comparison: mode shadow has compared an answer with that of nova-scheduler; "
            "foreign: another writer has changed allocations that a scheduler wrote.",
    "request": "Id of the request in Nova's logs and instance actions; empty for a node.",
    "servers": "The server; of a request for several, the first one and the number of the others.",
    "result": "How it ended; the words are defined below.",
    "hosts": "Of a decision the selected hosts, and in brackets those that refused, that a filter rejected, or that "
             "were tried otherwise; of the others the host of the build or of the node.",
    "reason": "Why it failed: the text of the failure with the number of hosts that each reason rejected, or the error "
              "of nova-compute; of a node, its last message. With --reason also what matches it of other records.",
})  # fmt: skip

NODE_CHANGES = TermGroup("Changes of the state of a node", "records: the result of a record of kind node; story.", {
    "snapshot": "The whole state of the node has arrived from its agent.",
    "resync": "The scheduler has asked the agent for its whole state, or for messages that are missing.",
    "silent": "The agent does not report; the state of the node is read from Nova's databases and Placement.",
})  # fmt: skip

AGREEMENT = TermGroup(
    "Agreement with nova-scheduler",
    "agreement, records and why: the result of a comparison in mode shadow, and the reason of a difference. If our "
    "filters refuse the host of nova-scheduler, the reason is that of the decision.", {
    "same": "Both chose the same hosts.",
    "different": "They chose different hosts.",
    "ours_refused": "This scheduler found no host, nova-scheduler did.",
    "stock_refused": "nova-scheduler found no host, this scheduler did.",
    "both_refused": "Neither found a host.",
    "ours_failed": "This scheduler made no decision; the reason is the failure code or the exception.",
    "stock_failed": "nova-scheduler did not answer in time, raised another exception than NoValidHost, or its answer "
                    "could not be read.",
    "dropped": "Too many comparisons waited, so this scheduler was not asked.",
    "equal_weight": "The hosts of both have the same weight.",
    "near_tie": "The weights differ by at most near_tie; this scheduler prefers hosts of its own slice.",
    "weight": "The host of nova-scheduler has a lower weight in the table of this scheduler.",
    "unknown_host": "The table of this scheduler does not have the host.",
    "passes_now": "The host was refused and is not refused any more, because the table has changed since the decision.",
    "request_filter": "One of Nova's request filters refused the request before any host was considered.",
    "unreadable_answer": "The answer of nova-scheduler does not have the form that nova-conductor expects.",
})  # fmt: skip

STORIES = TermGroup("Lines of a story", "why, why-not and story.", {
    "weights": "Of the hosts that passed, the one with the greatest weight is tried first, unless others weigh nearly "
               "as much: then schedulers that decide at the same time prefer different ones of these. Each weigher of "
               "Nova adds its part. Behind chosen stands the host that was chosen, if it is none of the best five.",
    "alternates": "Hosts that nova-conductor tries, in this order, if the build on the selected one fails.",
    "selected": "The scheduler has answered nova-conductor with this host, so the server is built there first.",
    "Success": "Of an event of Nova. nova-compute also ends a build with it that it hands back, so that nova-conductor "
               "tries the next host; if a record shows that the build failed, why prints this instead.",
    "no end recorded": "Of an event of Nova, in JSON unfinished. Nova may also keep no end for a build that was handed "
                       "back.",
    "held": "Of a host that refused, or was rejected, for lack of room: the servers and migrations that had the "
            "resource there at that moment, the largest first, as far as the scheduler knew. A claim is pending until "
            "nova-compute counts its server.",
    "verdict": "Of a host that was tried: the time until its agent had answered the claim.",
    "write": "Of a host that was tried: the time until Placement had answered.",
    "placing": "Time in which hosts were selected, claimed and written.",
    "rechecking": "Time in which Placement was asked whether there is really no host.",
    "checking": "Time in which the server group or the spreading was checked after the write.",
    "yielding": "Time in which claims were taken back, because other members of the group came first.",
    "failing": "Time in which claims were taken back, because the request had failed.",
    "state": "The last message of the agent of the host that the scheduler knew: the epoch is the number of a run of "
             "the agent, and the sequence that of the message in this run.",
})  # fmt: skip

TOP = TermGroup("Live view", "top and the page of serve: what the running schedulers do.", {
    "decisions": "Requests that ended, with hosts or without.",
    "without host": "Requests that ended without a host: none was found, or the request failed. In JSON failures.",
    "refusals": "Claims that an agent refused.",
    "lag": "Messages of an agent that are known to exist and are not applied yet. A silent agent has none: the state "
           "of its node is read from the databases.",
    "without agent": "Nodes of which no agent was ever heard.",
    "in step": "Nodes of which each message that is known to exist is applied.",
    "requests": "Queue: requests that are not answered yet.",
    "placement_writes": "Queue: writes that wait for Placement.",
    "records": "Queue: records that wait to be stored.",
    "windows": "The nodes by the state of their window: the part of a scheduler that puts the messages of a node's "
               "agent in order and detects gaps.",
    "new": "Window: no message of the node has arrived.",
    "in_order": "Window: no message is missing.",
    "unverified": "Window: the copy is not compared with the agent's digest yet.",
    "gap": "Window: a message is missing.",
    "differs": "Window: the digest of the agent differs from that of the copy.",
    "lost": "Window: the copy cannot be used until a snapshot arrives.",
    "silent": "Window: the agent does not report at present.",
})  # fmt: skip

PAGE = TermGroup("The page", "serve: the page of the fleet.", {
    "not choosable": "No request may select the node at present, or it is in quarantine.",
    "usable": "Free capacity of choosable nodes that can be used if servers use all resources of a node alike: of each "
              "resource the smallest share that the node has free of any.",
    "stranded": "Free capacity of choosable nodes beyond what is usable: another resource of the node runs out first. "
                "Of one node: the largest share of a resource that is stranded.",
})  # fmt: skip

#: what filters of Nova that reject often say of a host
OF_FILTERS = {
    "ComputeFilter": "nova-compute of the host is down or disabled: up false is down, for longer than "
    "[DEFAULT] service_down_time.",
    "ServerGroupAntiAffinityFilter": "The host already has as many members of the server group as its policy allows.",
    "ServerGroupAffinityFilter": "The members of the server group are on other hosts, and its policy demands one host.",
}
#: words of definitions that are defined too; the definition of the first one has the second
OWN = ("agent", "claim")
#: in the order of the glossary page
GROUPS = (
    GENERAL, FRESHNESS, NOT_CHOOSABLE, COLUMNS, READS, FOREIGN_CHANGES, CHANGE_KINDS, REASONS, ATTEMPTS, FAILURES,
    BUILDS, SOURCES, RECORD_COLUMNS, NODE_CHANGES, AGREEMENT, STORIES, COUNTERS, TOP, PAGE, RESYNCS,
)  # fmt: skip


def help_text(*groups: TermGroup) -> str:
    """The definitions of some groups as plain text, for the end of a command's ``--help``."""
    return "\n\n".join("\n".join(_lines(group)) for group in groups)


def explained(codes: Iterable[str], *groups: TermGroup) -> list[str]:
    """The definitions of the words that a command has printed, for the end of its output; none if it knows none."""
    found = meanings(codes, *groups)
    return ["", "Words:", *_definitions(found)] if found else []


def meanings(codes: Iterable[str], *groups: TermGroup) -> dict[str, str]:
    """Word -> its definition, of the words that are known, in order.

    A code may have a part after a colon.  The first group that has a word defines it, the general terms last.  Behind
    them stand those words of the definitions that nobody knows who has not seen this scheduler.
    """
    found: dict[str, str] = {}
    for word in (code.partition(":")[0] for code in codes):
        meaning = next((group.terms[word] for group in (*groups, GENERAL) if word in group.terms), "")
        if meaning:
            found[word] = meaning
        elif word.endswith("Filter"):
            found[word] = OF_FILTERS.get(word, "A filter of Nova or of the site, by the name of its class.")
    for word in OWN:
        if any(re.search(rf"\b{word}s?\b", meaning) for meaning in found.values()):
            found.setdefault(word, GENERAL.terms[word])
    return found


def _lines(group: TermGroup) -> Iterator[str]:
    yield from textwrap.wrap(f"{group.title}. {group.where}", WIDTH)
    yield from _definitions(group.terms)


def _definitions(terms: Mapping[str, str]) -> Iterator[str]:
    width = max(map(len, terms))
    for name, meaning in terms.items():
        first, *rest = textwrap.wrap(meaning, WIDTH - width - 4)
        yield f"  {name:{width}}  {first}"
        yield from (f"  {'':{width}}  {line}" for line in rest)
