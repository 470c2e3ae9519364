# SPDX-License-Identifier: Apache-2.0
"""Stories of agents that publish, become silent, refuse and return; and of other schedulers."""

from __future__ import annotations

from dataclasses import replace

from shared_scheduler.core import effects as ef
from shared_scheduler.core import events as ev
from shared_scheduler.decision.decision_settings import DecisionSettings
from shared_scheduler.model.services import ServiceFacts
from shared_scheduler.protocol.messages import (
    Claim,
    Consumer,
    Heartbeat,
    Hello,
    Increment,
    Leave,
    Reason,
    Resync,
    Role,
    Usage,
    Verdict,
    Want,
)
from shared_scheduler.table.row import Freshness, Version
from tests.unit.core.scheduler_driver import (
    CELL,
    ME,
    OTHER_CELL,
    SchedulerDriver,
    claims_in,
    node_read,
    of_kind,
    only,
    only_claim,
    request,
    resyncs_in,
    snapshot,
    taken,
)


def heartbeat(driver: SchedulerDriver, node: str = "node-1", sequence: int = 1, epoch: int = 1) -> Heartbeat:
    """A heartbeat whose digest is that of our own copy."""
    digest = driver.table.digest(node) if node in driver.table else 0
    return Heartbeat(node, epoch, sequence, node.replace("node", "host"), digest)


# -- freshness


def test_a_row_without_an_agent_is_provisional_and_fresh_after_a_snapshot() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    assert driver.table.freshness("node-1") is Freshness.PROVISIONAL
    driver.hear(snapshot("node-1"))
    assert driver.table.freshness("node-1") is Freshness.FRESH
    assert driver.table.version("node-1") == Version(1, 1)


def test_a_gap_makes_the_row_suspect_and_asks_for_a_replay() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Increment("node-1", 1, 3, {"cn.vcpus_used": 3}))
    assert driver.table.freshness("node-1") is Freshness.SUSPECT
    (send,) = of_kind(ef.Send, driver.wait(0.5))
    assert send.address == "ssched.agent.host-1"
    assert (send.message.epoch, send.message.after_sequence) == (1, 1)  # type: ignore[union-attr]
    # a suspect node may be chosen, and is judged by its agent
    assert only_claim(driver.ask()).node == "node-1"
    # what was missing comes: both are applied, in order
    driver.hear(Increment("node-1", 1, 2, {"cn.vcpus_used": 2}))
    assert driver.table.version("node-1") == Version(1, 3)
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_a_new_life_of_an_agent_makes_the_row_stale_until_its_snapshot() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Hello(Role.AGENT, "ssched.agent.host-1", 2, "node-1", "host-1"))
    assert driver.table.freshness("node-1") is Freshness.STALE
    assert claims_in(driver.ask()) == []
    driver.hear(snapshot("node-1", epoch=2))
    assert driver.table.freshness("node-1") is Freshness.FRESH
    # the old life changes nothing any more
    driver.hear(Increment("node-1", 1, 2, {"cn.vcpus_used": 4}))
    assert driver.table.version("node-1") == Version(2, 1)


def test_a_lost_last_message_is_found_by_the_heartbeat() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Heartbeat("node-1", 1, 2, "host-1", 0))
    assert driver.table.freshness("node-1") is Freshness.SUSPECT
    assert resyncs_in(driver.wait(0.5)) == ["node-1"]


def test_an_agent_that_falls_silent_leaves_a_provisional_row_that_is_read_again() -> None:
    driver = SchedulerDriver(silent_after_s=10.0).with_agents("node-1")
    effects = driver.wait(10.1)
    assert [refresh.node for refresh in of_kind(ef.RefreshNode, effects)] == ["node-1"]
    assert driver.table.freshness("node-1") is Freshness.PROVISIONAL
    driver.give(node_read("node-1", vcpus=2))
    assert driver.table.version("node-1") == Version(0, 0)
    # claims go to Placement directly now
    assert only(ef.WriteAllocation, driver.ask()).serialise
    # it speaks again: what it says is only believed after a snapshot
    driver.hear(Increment("node-1", 1, 2, {"cn.vcpus_used": 4}))
    assert driver.table.freshness("node-1") is Freshness.STALE
    driver.hear(snapshot("node-1", sequence=2))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_heartbeats_keep_an_agent_alive() -> None:
    driver = SchedulerDriver(silent_after_s=10.0).with_agents("node-1")
    for _ in range(5):
        driver.wait(5.0)
        driver.hear(heartbeat(driver))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_leave_is_silence_at_once() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(Leave("node-1", 1, 1))
    assert driver.table.freshness("node-1") is Freshness.PROVISIONAL


def test_reads_of_databases_are_ignored_while_the_agent_publishes() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.give(node_read("node-1", vcpus=0))
    assert driver.table.version("node-1") == Version(1, 1)


def test_an_agent_that_gives_no_verdict_is_unresponsive_then_silent() -> None:
    driver = SchedulerDriver(silent_after_timeout_s=5.0).with_agents("node-1")
    only_claim(driver.ask())
    driver.wait(3.1)
    assert driver.table.freshness("node-1") is Freshness.STALE
    effects = driver.wait(5.0)
    assert [refresh.node for refresh in of_kind(ef.RefreshNode, effects)] == ["node-1"]
    assert driver.table.freshness("node-1") is Freshness.PROVISIONAL


def test_any_message_of_an_unresponsive_agent_makes_it_the_authority_again() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    only_claim(driver.ask())
    driver.wait(3.1)
    driver.hear(heartbeat(driver))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def lose_claims(driver: SchedulerDriver, count: int) -> None:
    """Claims that no agent gets, one in 0.1 s."""
    for number in range(count):
        only_claim(driver.ask(request(f"lost-{number}")))
        driver.wait(0.1)


def test_an_agent_that_has_answered_is_not_asked_again_for_verdicts_on_earlier_claims() -> None:
    # given claims one after the other, which the agent never gets
    driver = SchedulerDriver().with_agents("node-1")
    lose_claims(driver, 3)
    # when the first one gets no verdict, then the agent is asked for its state
    assert resyncs_in(driver.wait(2.75)) == ["node-1"]
    # when it answers, then the missing verdicts on the others are no news
    driver.hear(snapshot("node-1", sequence=2))
    assert resyncs_in(driver.wait(0.3)) == []
    assert driver.table.freshness("node-1") is Freshness.FRESH
    # but one on a claim that began after the question
    only_claim(driver.ask(request("new")))
    assert resyncs_in(driver.wait(3.0)) == ["node-1"]
    assert driver.table.freshness("node-1") is Freshness.STALE


def test_an_answer_counts_that_arrives_together_with_an_earlier_message() -> None:
    # given an agent that was asked for its state because of a missing verdict
    driver = SchedulerDriver().with_agents("node-1")
    lose_claims(driver, 2)
    assert resyncs_in(driver.wait(2.85)) == ["node-1"]
    # when a heartbeat and the answer arrive in one batch
    driver.hear(heartbeat(driver), snapshot("node-1", sequence=2))
    # then the other missing verdict is no news
    assert resyncs_in(driver.wait(0.3)) == []
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_an_agent_that_has_not_answered_is_asked_again_for_verdicts_on_earlier_claims() -> None:
    # given an agent that hears nothing, and its heartbeats
    driver = SchedulerDriver().with_agents("node-1")
    lose_claims(driver, 2)
    assert resyncs_in(driver.wait(2.85)) == ["node-1"]
    # when a heartbeat comes instead of the answer
    driver.hear(heartbeat(driver))
    # then the next missing verdict is news
    assert resyncs_in(driver.wait(0.1)) == ["node-1"]
    assert driver.table.freshness("node-1") is Freshness.STALE


def in_the_past(claim: Claim) -> Verdict:
    """The word of an agent whose memory is lost and whose clock was set back."""
    return Verdict(claim.claim_id, claim.node, 3, False, Reason("expired", {"epoch": 3}), 0)


def test_an_agent_that_judges_in_an_epoch_of_the_past_is_asked_to_go_on_and_left_alone_until_then() -> None:
    # given an agent that was followed in epoch 5, and has come back in epoch 3
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(snapshot("node-1", epoch=5))
    # when a claim shows that
    effects = driver.hear(in_the_past(only_claim(driver.ask(request("a")))))
    # then it is told which epoch to surpass, and gets no further claims
    asks = [send.message for send in of_kind(ef.Send, effects) if isinstance(send.message, Resync)]
    assert [(asked.node, asked.epoch) for asked in asks] == [("node-1", 5)]
    assert driver.table.freshness("node-1") is Freshness.STALE
    assert claims_in(driver.ask(request("b"))) == []
    # until it has
    driver.wait(0.1)
    driver.hear(snapshot("node-1", epoch=6))
    assert driver.table.freshness("node-1") is Freshness.FRESH
    assert only_claim(driver.ask(request("c"))).seen_epoch == 6


def test_a_late_verdict_of_an_old_epoch_causes_no_resync() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.hear(snapshot("node-1", epoch=5))
    claim = only_claim(driver.ask())
    driver.hear(snapshot("node-1", epoch=6))
    effects = driver.hear(in_the_past(claim))
    assert resyncs_in(effects) == []
    assert driver.table.freshness("node-1") is Freshness.FRESH


def test_a_node_whose_nova_compute_is_away_is_not_chosen() -> None:
    driver = SchedulerDriver().with_agents("node-1", agent__ready=False)
    assert claims_in(driver.ask()) == []


def test_a_node_that_refuses_again_and_again_is_tried_last() -> None:
    # given a node that is better than the other, and has refused two claims
    driver = SchedulerDriver(refusals_max=2, quarantine_s=30.0).with_agents("node-1")
    driver.with_agents("node-2", free_mb=3072)
    for name in ("a", "b"):
        claim = only_claim(driver.ask(request(name, force_hosts=("host-1",))))
        driver.refuse(claim, "topology")
    # when a request may have both, the other is tried first, and that one in the end
    second = only_claim(driver.ask(request("c")))
    first = only_claim(driver.refuse(second, "topology"))
    assert (second.node, first.node) == ("node-2", "node-1")
    # when its time is over
    driver.refuse(first, "topology")
    driver.wait(30.1)
    assert only_claim(driver.ask(request("d"))).node == "node-1"


def test_a_quarantined_node_is_selected_if_it_is_the_only_one() -> None:
    driver = SchedulerDriver(refusals_max=2).with_agents("node-1")
    for name in ("a", "b"):
        driver.refuse(only_claim(driver.ask(request(name))), "topology")
    assert driver.core.quarantine.nodes == {"node-1"}
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request("c")))))
    driver.written(write)
    assert driver.core.quarantine.nodes == frozenset()


def test_a_success_between_refusals_clears_the_count() -> None:
    driver = SchedulerDriver(refusals_max=2).with_agents("node-1")
    driver.refuse(only_claim(driver.ask(request("a"))), "topology")
    driver.written(only(ef.WriteAllocation, driver.accept(only_claim(driver.ask(request("b"))))))
    driver.refuse(only_claim(driver.ask(request("c"))), "topology")
    assert only_claim(driver.ask(request("d"))).node == "node-1"


def test_nodes_that_are_gone_are_chosen_no_more_and_their_timers_with_them() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.give(ev.NodesGone(CELL, frozenset({"node-1", "never-known"})))
    assert len(driver.table) == 0 and len(driver.core.nodes) == 0
    driver.wait(1000.0)


def test_a_node_that_moved_to_another_cell_stays_when_its_old_cell_does_not_have_it_any_more() -> None:
    # given a node without an agent that was set up again in another cell, with its uuid
    driver = SchedulerDriver().without_agents("node-1")
    driver.without_agents("node-1", cell=OTHER_CELL, read_at_s=driver.now)
    # when its old cell is read after its new one
    driver.give(ev.NodesGone(CELL, frozenset({"node-1"})))
    # then it is selected in its new cell, and goes with that
    write = only(ef.WriteAllocation, driver.ask())
    assert (write.allocations, write.cell) == (taken("node-1"), OTHER_CELL)
    driver.give(ev.NodesGone(OTHER_CELL, frozenset({"node-1"})))
    assert len(driver.table) == len(driver.core.nodes) == 0


def test_a_node_that_moved_to_another_cell_is_read_again_there() -> None:
    driver = SchedulerDriver().without_agents("node-1")
    driver.without_agents("node-1", cell=OTHER_CELL, vcpus=0, read_at_s=driver.now)
    driver.wait(60.0)
    ask = only(ef.AskFitting, driver.ask())
    read = only(ef.RefreshNode, driver.give(ev.FittingAnswered(ask.ask_id, frozenset({"node-1"}), cause=ask.cause)))
    assert read.cell == OTHER_CELL


def test_a_read_of_the_old_cell_that_ends_late_does_not_move_a_node_back() -> None:
    driver = SchedulerDriver().without_agents("node-1", read_at_s=1.0)
    driver.without_agents("node-1", cell=OTHER_CELL, read_at_s=3.0)
    driver.give(node_read("node-1", CELL, read_at_s=2.0))
    assert driver.table.view("node-1").cell == OTHER_CELL
    assert driver.core.nodes.counters["reads_overtaken"] == 1


def test_another_cell_with_the_same_uuid_does_not_take_a_node_from_its_agent() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    driver.give(ev.NodesListed(CELL, {"node-1": "host-1"}, frozenset(), driver.now))
    driver.give(replace(node_read("node-1", OTHER_CELL, read_at_s=driver.now), host="host-9"))
    driver.give(ev.NodesGone(OTHER_CELL, frozenset({"node-1"})))
    assert only_claim(driver.ask()).node == "node-1"
    assert driver.core.nodes.owner_of("node-1") == "host-1"


def test_windows_are_bounded() -> None:
    driver = SchedulerDriver(nodes_max=1).with_agents("node-1")
    driver.hear(snapshot("node-2"))
    assert len(driver.core.nodes) == 1 and "node-2" not in driver.table
    assert driver.core.nodes.counters["messages_of_too_many_nodes"] == 1


def test_a_message_for_agents_is_counted_and_changes_nothing() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    stray = Claim("c-1", "node-1", "other", "server-9", taken("node-1"), Usage())
    assert driver.hear(stray) == []
    assert driver.core.nodes.counters["messages_not_for_schedulers"] == 1


# -- own claims and what nodes show of them


def test_an_own_claim_survives_a_snapshot_that_does_not_show_it_yet() -> None:
    # seed 000: given an accepted claim
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    driver.accept(claim, sequence=3)
    # when a snapshot from before arrives, what was taken stays taken
    driver.hear(snapshot("node-1", sequence=2))
    assert driver.table.view("node-1").used == taken("node-1")
    # when one shows it, it is not counted twice
    held = {"server-1": Consumer(taken("node-1"), True)}
    driver.hear(snapshot("node-1", sequence=3, consumers=held, claims={claim.claim_id: "server-1"}))
    assert driver.table.view("node-1").used == taken("node-1")


def confirmed(driver: SchedulerDriver) -> Claim:
    """A claim whose request is answered."""
    claim = only_claim(driver.ask())
    (write,) = of_kind(ef.WriteAllocation, driver.accept(claim, sequence=7))
    driver.written(write)
    return claim


def test_a_confirmed_claim_that_its_node_never_shows_is_read_from_placement_and_not_timed_out() -> None:
    driver = SchedulerDriver(unreported_after_s=15.0, silent_after_s=1e6).with_agents("node-1")
    claim = confirmed(driver)
    assert only(ef.AskConsumer, driver.wait(15.1)).consumer == "server-1"
    # Placement holds it: it stays, and is read again
    driver.give(ev.ConsumerAnswered("server-1", taken("node-1"), cause="req-1"))
    assert driver.table.is_outstanding(claim.claim_id)
    only(ef.AskConsumer, driver.wait(15.0))
    # nothing could be learned: it stays
    driver.give(ev.ConsumerAnswered("server-1", {}, "503", cause="req-1"))
    assert driver.table.is_outstanding(claim.claim_id)
    # Placement knows nothing of it: that is evidence
    driver.give(ev.ConsumerAnswered("server-1", {}, cause="req-1"))
    assert not driver.table.is_outstanding(claim.claim_id)
    assert len(driver.core.confirmed_claims) == 0


def test_a_confirmed_claim_that_its_node_shows_is_not_read_from_placement() -> None:
    driver = SchedulerDriver(unreported_after_s=15.0, silent_after_s=1e6).with_agents("node-1")
    claim = confirmed(driver)
    held = {"server-1": Consumer(taken("node-1"), True)}
    driver.hear(snapshot("node-1", sequence=7, consumers=held))
    assert not driver.table.is_outstanding(claim.claim_id)
    assert driver.wait(15.1) == []


# -- the channel, and other schedulers


def test_after_a_reconnect_agents_are_asked_for_heartbeats_and_rows_are_in_doubt_until_then() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    (broadcast,) = driver.give(ev.ChannelChanged(CELL, True))
    assert isinstance(broadcast, ef.Broadcast) and isinstance(broadcast.message, Hello)
    assert broadcast.message.want == Want.HEARTBEAT
    assert driver.table.freshness("node-1") is Freshness.SUSPECT
    driver.hear(heartbeat(driver))
    assert driver.table.freshness("node-1") is Freshness.FRESH


def hello(name: str, want: Want = Want.NOTHING) -> Hello:
    """Another scheduler's."""
    return Hello(Role.SCHEDULER, name, 1, "", "", want)


def test_schedulers_know_their_peers_and_forget_ended_ones() -> None:
    driver = SchedulerDriver(hello_interval_s=5.0)
    driver.give(ev.ChannelChanged(CELL, True))
    driver.hear(hello("scheduler-b"))
    assert driver.core.peers.live(CELL) == (ME, "scheduler-b")
    driver.wait(21.0)
    assert driver.core.peers.live(CELL) == (ME,)


def test_a_newcomer_is_greeted_at_once_but_not_again_and_again() -> None:
    driver = SchedulerDriver()
    driver.give(ev.ChannelChanged(CELL, True))
    driver.wait(2.0)
    only(ef.Broadcast, driver.hear(hello("scheduler-b", Want.SNAPSHOT)))
    assert driver.hear(hello("scheduler-c", Want.SNAPSHOT)) == []


def test_nothing_is_sent_on_a_lost_channel() -> None:
    driver = SchedulerDriver(hello_interval_s=5.0)
    driver.give(ev.ChannelChanged(CELL, True))
    driver.give(ev.ChannelChanged(CELL, False))
    assert driver.wait(60.0) == []


# -- services


def test_a_disabled_or_forgotten_service_is_not_chosen() -> None:
    driver = SchedulerDriver().with_agents("node-1", "node-2")
    up = ServiceFacts("host-1")
    driver.give(ev.ServicesRead(CELL, (up, ServiceFacts("host-2", disabled=True)), True))
    assert only_claim(driver.ask()).node == "node-1"
    driver.give(ev.ServicesRead(CELL, (up,), True))
    assert driver.table.service("host-2") is None


def test_a_service_that_moved_to_another_cell_is_that_of_its_new_cell() -> None:
    # given a node that was set up again in another cell, and its old service, which does not report any more
    driver = SchedulerDriver().without_agents("node-1")
    driver.without_agents("node-1", cell=OTHER_CELL, read_at_s=driver.now)
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-1", up=False),), True))
    # when the old one is deleted
    driver.give(ev.ServicesRead(CELL, (), True))
    # then the node is selected
    assert only(ef.WriteAllocation, driver.ask()).cell == OTHER_CELL
    # and is not when its new one is deleted too
    driver.give(ev.ServicesRead(OTHER_CELL, (), True))
    assert driver.table.service("host-1") is None


def test_a_service_that_is_left_in_the_old_cell_of_a_host_does_not_count() -> None:
    # given a host that was set up again in another cell
    driver = SchedulerDriver().without_agents("node-1")
    driver.without_agents("node-1", cell=OTHER_CELL, read_at_s=driver.now)
    driver.give(ev.ServicesRead(OTHER_CELL, (ServiceFacts("host-1"),), True))
    # when its old service, which nobody has deleted, is read again
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-1", up=False),), True))
    # then the node is selected, and is not when its own service is disabled
    assert only(ef.WriteAllocation, driver.ask()).cell == OTHER_CELL
    driver.give(ev.ServicesRead(OTHER_CELL, (ServiceFacts("host-1", disabled=True),), False))
    assert only(ef.Fail, driver.ask()).code is ef.FailureCode.NO_VALID_HOST


def test_a_host_that_comes_to_another_cell_has_the_service_of_that_cell() -> None:
    # given a service that was read in both cells, the old one last, before the node in its new one
    driver = SchedulerDriver().without_agents("node-1")
    driver.give(ev.ServicesRead(OTHER_CELL, (ServiceFacts("host-1"),), True))
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-1", up=False),), True))
    # when the node is read there
    driver.give(node_read("node-1", OTHER_CELL, read_at_s=driver.now))
    # then it is selected
    assert only(ef.WriteAllocation, driver.ask()).cell == OTHER_CELL


def test_a_write_names_the_service_that_the_decision_relied_on() -> None:
    # given a host that accepted servers when it was selected, and is disabled while its agent judges the claim
    driver = SchedulerDriver().with_agents("node-1")
    claim = only_claim(driver.ask())
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-1", disabled=True),), True))
    # when the allocation is to be written
    write = only(ef.WriteAllocation, driver.accept(claim))
    # then the service has to be checked
    assert (write.cell, write.service_host) == (CELL, "host-1")


def test_a_write_to_a_host_that_is_known_to_be_disabled_names_no_service() -> None:
    # given a site that does not use the ComputeFilter
    driver = SchedulerDriver(decision=DecisionSettings(enabled_filters=())).with_agents("node-1")
    driver.give(ev.ServicesRead(CELL, (ServiceFacts("host-1", disabled=True),), True))
    write = only(ef.WriteAllocation, driver.accept(only_claim(driver.ask())))
    assert write.service_host == ""


def test_a_verdict_without_a_waiting_claim_is_harmless() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    assert driver.hear(Verdict("unknown", "node-1", 1, True, None, 2)) == []
    assert driver.hear(Verdict("unknown", "node-1", 1, False, Reason("no_capacity"))) == []


def test_a_read_older_than_the_row_changes_nothing() -> None:
    # given two reads of a node without an agent, by two threads
    driver = SchedulerDriver().without_agents("node-1")
    older = replace(node_read("node-1"), read_at_s=1.0)
    newer = replace(node_read("node-1", vcpus=0), read_at_s=2.0)
    # when the one that began first comes last
    driver.give(newer)
    driver.give(older)
    # then what the newer one saw stands
    only(ef.AskFitting, driver.ask())


def test_an_agent_that_placement_contradicts_is_asked_to_read_placement() -> None:
    driver = SchedulerDriver().with_agents("node-1")
    [send] = of_kind(ef.Send, driver.give(ev.NodeContradicted("node-1", "Placement shows other providers")))
    assert isinstance(send.message, Resync) and send.message.recheck
