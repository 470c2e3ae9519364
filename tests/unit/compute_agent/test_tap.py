# SPDX-License-Identifier: Apache-2.0
"""The tap on Nova's own ResourceTracker, through a real local socket."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import nova.conf
import pytest
from nova import exception, objects
from nova.compute import vm_states
from nova.compute.resource_tracker import ResourceTracker
from nova.pci.manager import PciDevTracker
from nova.scheduler.client.report import SchedulerReportClient
from oslo_messaging import MessagingTimeout

from compute_agent.conf import register_opts
from compute_agent.events import Member
from compute_agent.sources.tap_client import TapClient
from compute_agent.tap import tap_channel as channel_module
from compute_agent.tap.hooks import METHODS, SET_TRAITS, Hooks, missing_names, reason_of
from compute_agent.tap.monitor import ENTRY_POINT, ResourceTrackerTap
from compute_agent.tap.tap_channel import TapChannel
from compute_agent.tap_wire import (
    BuildEnded,
    ClaimEntered,
    ClaimFailed,
    NodeGone,
    NodeReported,
    TapHello,
    TapMessage,
    TreeWritten,
)
from shared_scheduler.model.services import DISABLED_TRAIT
from shared_scheduler.sim.topology import is_pool
from tests.unit.compute_agent.node_facts import HOST, NODE
from tests.unit.compute_agent.real_tracker import CONTEXT, Devices, Tracker, guest, record

WAIT_S = 60.0
#: another node of the same host
SECOND = "4d6ad7b1-6b1c-4f5d-8f5f-000000000002"
MIGRATION = "5e0d8a4a-0000-4000-8000-00000000000a"
Kind = TypeVar("Kind")


def eventually(true: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until_s
        time.sleep(0.01)


class Listener:
    """The agent's side: everything that was heard, in order."""

    def __init__(self, path: str, host: str = HOST) -> None:
        self.heard: list[TapMessage] = []
        self.lost = 0
        self._changed = threading.Condition()
        self._client = TapClient(path, host, self._hear, self._lose)
        self._client.start()

    def _hear(self, message: TapMessage) -> None:
        with self._changed:
            self.heard.append(message)
            self._changed.notify_all()

    def _lose(self, why: str) -> None:
        with self._changed:
            self.lost += 1
            self._changed.notify_all()

    def stop(self) -> None:
        self._client.stop()

    def wait(self, true: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(true, WAIT_S), self.heard

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [one for one in self.heard if isinstance(one, kind)]

    def next(self, kind: type[Kind], after: int = 0) -> Kind:
        self.wait(lambda: len(self.of(kind)) > after)
        return self.of(kind)[after]


class TreesTold:
    """The nodes whose provider trees an agent is told to read."""

    def __init__(self, tracker: Tracker, listener: Listener) -> None:
        self._tracker, self._listener = tracker, listener
        self._known = 0
        self.now()

    def now(self) -> list[str]:
        """Those since the last time."""
        ended = len(self._listener.of(ClaimFailed))
        with pytest.raises(exception.ComputeResourcesUnavailable):
            self._tracker.instance_claim(CONTEXT, guest(self._tracker, "last"), "no-such-node", {})
        self._listener.next(ClaimFailed, after=ended)  # all that was told before has arrived
        trees = [one.node for one in self._listener.of(TreeWritten)]
        known, self._known = self._known, len(trees)
        return trees[known:]


@pytest.fixture
def tracker() -> Tracker:
    return Tracker()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "agent" / "tap.sock")


@pytest.fixture
def hooks(tracker: Tracker, path: str) -> Hooks:
    made = Hooks(tracker, os.getpid(), partial(TapChannel, path))
    made.install()
    tracker.update_available_resource(CONTEXT, HOST, startup=True)
    return made


def channel_of(hooks: Hooks) -> TapChannel:
    assert isinstance(hooks.sink, TapChannel)
    return hooks.sink


@contextmanager
def agent_that_reads_nothing(
    hooks: Hooks, monkeypatch: pytest.MonkeyPatch, most: int
) -> Iterator[Callable[[], list[TapMessage]]]:
    """An agent is connected, and the queue holds ``most`` messages; what it holds now."""
    channel = channel_of(hooks)
    monkeypatch.setattr(channel_module, "QUEUE_MAX_MESSAGES", most)
    with hooks.sink.lock:
        channel._peer = object()  # type: ignore[assignment]
        yield lambda: list(channel._queue)
        channel._peer = None


@pytest.fixture
def listener(hooks: Hooks, path: str) -> Iterator[Listener]:
    listening = Listener(path)
    listening.next(NodeReported)
    yield listening
    listening.stop()


class TestWhatIsTold:
    def test_an_agent_that_connects_gets_complete_reports(self, listener: Listener) -> None:
        first, second = listener.heard[:2]

        assert first == TapHello(HOST, os.getpid())
        assert isinstance(second, NodeReported)
        assert (second.node, second.complete, second.ready) == (NODE, True, True)
        assert second.leaves["cn.vcpus"] == 4
        assert second.leaves["cn.host_ip"] == "192.0.2.1"
        assert second.leaves["cn.supported_hv_specs"] == [["x86_64", "kvm", "hvm"]]

    def test_a_boot_is_its_begin_and_then_its_leaves_with_the_instance(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-1", vcpus=2), HOST, {})

        assert listener.next(ClaimEntered) == ClaimEntered("vm-1", "instance_claim")
        told = listener.next(NodeReported, after=1)
        assert not told.complete
        assert told.leaves["cn.vcpus_used"] == 2
        assert told.leaves["stats.num_instances"] == 1
        assert told.members == {"vm-1": Member(instance=True, migration="")}
        assert "cn.vcpus" not in told.leaves

    def test_the_images_of_its_instances_are_counted(self, tracker: Tracker, listener: Listener) -> None:
        for uuid in ("vm-1", "vm-2"):
            booted = guest(tracker, uuid)
            booted.image_ref = None
            booted.system_metadata = {
                "image_hw_architecture": "x86_64", "image_hw_qemu_guest_agent": "yes", "owner": "me"
            }  # fmt: skip
            tracker.instance_claim(CONTEXT, booted, HOST, {})
        first, second = listener.next(NodeReported, after=1), listener.next(NodeReported, after=2)
        assert first.leaves["image.hw_architecture=x86_64"] == 1
        assert second.leaves["image.hw_architecture=x86_64"] == 2
        assert second.leaves["image.hw_qemu_guest_agent=True"] == 2  # as Nova's object has it

        booted.vm_state = vm_states.DELETED
        tracker.update_usage(CONTEXT, booted, HOST)

        assert listener.next(NodeReported, after=3).leaves["image.hw_architecture=x86_64"] == 1

    def test_the_instance_is_gone_when_nova_frees_it(self, tracker: Tracker, listener: Listener) -> None:
        booted = guest(tracker, "vm-1")
        tracker.instance_claim(CONTEXT, booted, HOST, {})
        booted.vm_state = vm_states.DELETED

        tracker.update_usage(CONTEXT, booted, HOST)

        told = listener.next(NodeReported, after=2)
        assert told.members == {"vm-1": None}
        assert told.leaves["cn.vcpus_used"] == 0

    def test_an_audit_without_changes_reports_nothing(self, tracker: Tracker, listener: Listener) -> None:
        before = len(listener.heard)

        tracker.update_available_resource(CONTEXT, HOST)
        tracker.build_failed(HOST)  # tells something, so that the silence before it is known

        told = listener.next(NodeReported, after=1)
        assert told.leaves == {"stats.failed_builds": 1}
        assert len(listener.heard) == before + 1

    def test_a_refusal_of_nova_compute_is_reported_and_still_raised(self, tracker: Tracker, listener: Listener) -> None:
        with pytest.raises(exception.ComputeResourcesUnavailable):
            tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), "no-such-node", {})

        failed = listener.next(ClaimFailed)
        assert (failed.consumer, failed.kind) == ("vm-1", "instance_claim")
        assert "no-such-node" in failed.text

    def test_a_successful_build_is_published_with_its_instance(self, tracker: Tracker, listener: Listener) -> None:
        with tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), HOST, {}):
            pass  # nova-compute builds here
        tracker.build_succeeded(HOST)

        assert listener.next(BuildEnded) == BuildEnded(NODE, "vm-1", True)

    def test_only_the_audit_after_a_build_shows_that_the_host_builds_nothing_any_more(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        def busy() -> list[object]:
            leaves = (one.leaves for one in listener.of(NodeReported))
            return [own["stats.io_workload"] for own in leaves if "stats.io_workload" in own]

        # given a server that nova-compute has built
        built = guest(tracker, "vm-1")
        with tracker.instance_claim(CONTEXT, built, HOST, {}):
            pass  # nova-compute builds here
        tracker.build_succeeded(HOST)
        listener.next(BuildEnded)
        assert busy()[-1] == 1
        # when an audit counts it
        built.vm_state = vm_states.ACTIVE
        tracker._update_usage_from_instance(CONTEXT, built, HOST)
        tracker._update(CONTEXT, tracker.compute_nodes[HOST])
        # then it is reported: one more increment for the schedulers
        listener.wait(lambda: busy()[-1] == 0)

    def test_a_failed_build_is_published_with_its_reason(self, tracker: Tracker, listener: Listener) -> None:
        aborted, claim = pytest.raises(exception.BuildAbortException), tracker.instance_claim
        with aborted, claim(CONTEXT, guest(tracker, "vm-1"), HOST, {}):
            try:
                raise exception.NoMoreFixedIps(net="lan")
            except exception.NoMoreFixedIps:
                raise exception.BuildAbortException(instance_uuid="vm-1", reason="see above")  # noqa: B904
        tracker.build_failed(HOST)

        ended = listener.next(BuildEnded)
        assert (ended.node, ended.consumer, ended.succeeded) == (NODE, "vm-1", False)
        assert ended.text.startswith("BuildAbortException: Build of instance vm-1 aborted: see above; because of ")
        assert ended.text.endswith("NoMoreFixedIps: No fixed IP addresses available for network: lan")

    def test_a_build_that_began_in_another_thread_ends_nothing_here(self, tracker: Tracker, listener: Listener) -> None:
        building = threading.Thread(target=lambda: tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), HOST, {}))
        building.start()
        building.join()

        tracker.build_succeeded(HOST)
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-2"), HOST, {})
        tracker.build_succeeded(HOST)

        assert listener.next(BuildEnded) == BuildEnded(NODE, "vm-2", True)

    def test_the_reason_of_a_build_is_one_short_line_without_passwords(self) -> None:
        error = RuntimeError("first\nsecond\x1b[31m 'adminPass': 'hush' " + "x" * 1000)

        text = reason_of(error)

        assert text.isprintable() and len(text) == 500
        assert text.startswith("RuntimeError: first second") and "hush" not in text

    def test_usage_is_reported_even_if_placement_fails_afterwards(self, tracker: Tracker, listener: Listener) -> None:
        tracker.fail_update = True

        with pytest.raises(RuntimeError):
            tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), HOST, {})

        assert listener.next(NodeReported, after=1).members == {"vm-1": Member()}

    def test_a_changed_provider_tree_is_reported(self, tracker: Tracker, listener: Listener) -> None:
        known = len(listener.of(TreeWritten))
        tracker.update_available_resource(CONTEXT, HOST)
        tracker.inventory = {"VCPU": {"total": 8}}

        tracker.update_available_resource(CONTEXT, HOST)
        tracker.build_failed(HOST)

        listener.next(NodeReported, after=1)
        assert len(listener.of(TreeWritten)) == known + 1

    def test_traits_that_nova_compute_sets_between_audits_are_reported(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given a nova-compute after its first audit, with another provider that is none of its nodes
        client, told = tracker.reportclient, TreesTold(tracker, listener)
        client._provider_tree.new_root("another", SECOND, generation=1)

        # when an operator disables it, which sets a trait on its provider, and something else on another one
        client.set_traits_for_provider(CONTEXT, NODE, {DISABLED_TRAIT}, generation=7)
        client.set_traits_for_provider(CONTEXT, SECOND, {"CUSTOM_SLOW"})

        # then Placement has it, and the agent knows that it must look
        assert told.now() == [NODE]
        assert tracker.placement.traits == {NODE: [DISABLED_TRAIT], SECOND: ["CUSTOM_SLOW"]}

        # and again when it is enabled, whatever style the caller has
        client.set_traits_for_provider(context=CONTEXT, rp_uuid=NODE, traits=set())
        assert told.now() == [NODE]

    def test_claims_and_audits_without_new_traits_let_nobody_read_the_provider_tree(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given a nova-compute that has told its providers
        tracker.update_available_resource(CONTEXT, HOST)
        told = TreesTold(tracker, listener)

        # when it claims and audits, where Nova's client is always called for all traits, and writes nothing
        written = len(tracker.placement.writes)
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), HOST, {})
        tracker.update_available_resource(CONTEXT, HOST)

        # then the agent has no reason to read
        assert len(tracker.placement.writes) == written
        assert told.now() == []

    def test_an_audit_that_looked_before_the_service_was_disabled_takes_the_trait_back_and_tells_it(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given an audit that has looked at the service, and an operator who disables it before the audit writes
        told, set_traits = TreesTold(tracker, listener), tracker.reportclient.set_traits_for_provider

        def disable() -> None:
            call = threading.Thread(target=set_traits, args=(CONTEXT, NODE, {DISABLED_TRAIT}))
            call.start()
            call.join()

        tracker.while_audited = disable
        tracker.update_available_resource(CONTEXT, HOST)
        # then Placement has the trait no more, and the agent looks after that
        assert tracker.placement.traits == {NODE: []}
        assert told.now() == [NODE, NODE]

        # and the next audit corrects it
        del tracker.while_audited
        tracker.service_disabled = True
        tracker.update_available_resource(CONTEXT, HOST)
        assert told.now() == [NODE]

    def test_traits_that_were_written_although_the_call_raised_are_reported(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given a service that was disabled
        told = TreesTold(tracker, listener)
        tracker.reportclient.set_traits_for_provider(CONTEXT, NODE, {DISABLED_TRAIT})
        # when it is enabled, and a proxy before Placement answers late, after the write
        tracker.placement.status = 504
        with pytest.raises(exception.ResourceProviderUpdateFailed):
            tracker.reportclient.set_traits_for_provider(CONTEXT, NODE, set())
        # then the agent looks
        assert tracker.placement.traits == {NODE: []}
        assert told.now() == [NODE, NODE]

    def test_a_tree_is_told_after_an_update_that_raised_even_if_it_is_that_of_before(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given an update that raised after Placement had written some of it, which the agent may have read since
        tracker.update_available_resource(CONTEXT, HOST)
        told, before, tracker.inventory = TreesTold(tracker, listener), tracker.inventory, {"VCPU": {"total": 8}}
        tracker.placement.status = 504
        with pytest.raises(exception.ResourceProviderSyncFailed):
            tracker.update_available_resource(CONTEXT, HOST)
        tracker.placement.status = 200
        assert told.now() == []
        # when the next one writes what was there before
        tracker.inventory = before
        tracker.update_available_resource(CONTEXT, HOST)
        # then the agent looks
        assert told.now() == [NODE]

    def test_each_of_several_nodes_that_are_disabled_is_reported(self, tracker: Tracker, listener: Listener) -> None:
        # given a host with two nodes
        tracker.compute_nodes["second"] = record(SECOND, "second")
        tracker._update(CONTEXT, tracker.compute_nodes["second"])
        told = TreesTold(tracker, listener)
        # when both are disabled by one call, and one is gone before it is enabled
        for node in (NODE, SECOND):
            tracker.reportclient.set_traits_for_provider(CONTEXT, node, {DISABLED_TRAIT})
        assert told.now() == [NODE, SECOND]
        tracker.remove_node("second")
        tracker.reportclient.set_traits_for_provider(CONTEXT, SECOND, set())
        assert told.now() == []

    def test_all_of_several_calls_at_once_are_reported(self, tracker: Tracker, listener: Listener) -> None:
        told, set_traits = TreesTold(tracker, listener), tracker.reportclient.set_traits_for_provider
        calls = [threading.Thread(target=set_traits, args=(CONTEXT, NODE, {f"CUSTOM_{n}"})) for n in range(8)]
        for call in calls:
            call.start()
        tracker.update_available_resource(CONTEXT, HOST)
        for call in calls:
            call.join()
        assert len(told.now()) >= len(calls)

    def test_an_instance_that_moved_away_is_removed_when_the_move_is_confirmed(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        # given a server that was built here and runs on another host, waiting for its confirmation
        moved = guest(tracker, "vm-1")
        tracker.instance_claim(CONTEXT, moved, HOST, {})
        # when it is confirmed, between two audits: Nova's statistics keep it until the next one
        tracker._drop_move_claim(CONTEXT, moved, HOST, moved.flavor, prefix="old_")
        assert "vm-1" in tracker.stats[HOST].states
        # then it is here no more
        listener.wait(lambda: listener.of(NodeReported)[-1].members == {"vm-1": None})
        # and when it comes back it is here again
        tracker.instance_claim(CONTEXT, moved, HOST, {})
        listener.wait(lambda: listener.of(NodeReported)[-1].members == {"vm-1": Member()})

    def test_an_instance_resized_to_this_node_stays_when_the_resize_is_confirmed(
        self, tracker: Tracker, listener: Listener
    ) -> None:
        resized = guest(tracker, "vm-1")
        tracker.instance_claim(CONTEXT, resized, HOST, {})
        tracker.tracked_migrations["vm-1"] = objects.Migration(uuid=MIGRATION, source_node=HOST, dest_node=HOST)
        tracker._drop_move_claim(CONTEXT, resized, HOST, resized.flavor, prefix="old_")

        tracker.build_failed(HOST)
        listener.wait(lambda: "stats.failed_builds" in listener.of(NodeReported)[-1].leaves)
        members: dict[str, Member | None] = {}
        for told in listener.of(NodeReported):
            members |= told.members
        assert members == {"vm-1": Member()}

    def test_a_move_ends_after_the_tracker_has_forgotten_it(self, tracker: Tracker, listener: Listener) -> None:
        tracker.tracked_migrations["vm-1"] = objects.Migration(uuid=MIGRATION, source_node="elsewhere", dest_node=HOST)
        tracker._update(CONTEXT, tracker.compute_nodes[HOST])
        assert listener.next(NodeReported, after=1).members == {"vm-1": Member(False, MIGRATION)}

        moved = guest(tracker, "vm-1")
        tracker.drop_move_claim(CONTEXT, moved, HOST, flavor=moved.flavor)

        listener.wait(lambda: any("vm-1" in one.members for one in listener.of(NodeReported)[2:]))
        assert listener.of(NodeReported)[-1].members == {"vm-1": None}

    def test_a_node_that_nova_removes_is_removed(self, tracker: Tracker, listener: Listener) -> None:
        tracker.remove_node(HOST)

        assert listener.next(NodeGone) == NodeGone(NODE)

    def test_the_audit_of_one_node_makes_no_other_ready(self, tracker: Tracker, hooks: Hooks) -> None:
        # given a node whose audit has ended, and another one of the same host before its first audit
        tracker.compute_nodes["second"] = record(SECOND, "second")
        tracker._update(CONTEXT, tracker.compute_nodes["second"])

        _, first, second = hooks.everything()
        assert isinstance(first, NodeReported) and first.ready
        assert isinstance(second, NodeReported) and second.node == SECOND and not second.ready

    def test_devices_are_those_of_each_node_of_the_host(self, tracker: Tracker, hooks: Hooks) -> None:
        tracker.pci_tracker = Devices({"vendor_id": "8086", "product_id": "1515", "numa_node": 0, "count": 2})
        tracker.compute_nodes["second"] = record(SECOND, "second")
        for node in tracker.compute_nodes.values():
            tracker._update(CONTEXT, node)

        # when one is taken without a claim
        tracker.pci_tracker.stats.pools[0]["count"] = 1
        tracker.pci_tracker.save(CONTEXT)

        told = [one for one in hooks.everything() if isinstance(one, NodeReported)]
        counts = [[leaf for name, leaf in one.leaves.items() if is_pool(name)] for one in told]
        assert counts == [[1], [1]]

    def test_a_node_without_an_audit_is_not_ready(self, tracker: Tracker, path: str) -> None:
        hooks = Hooks(tracker, 1, partial(TapChannel, path))
        hooks.install()
        tracker.compute_nodes[HOST] = record()

        tracker._update(CONTEXT, tracker.compute_nodes[HOST])

        (_, told) = hooks.everything()
        assert isinstance(told, NodeReported) and not told.ready


class TestNovaIsLeftAlone:
    def test_a_mistake_in_a_hook_is_not_novas_problem(
        self, tracker: Tracker, listener: Listener, caplog: pytest.LogCaptureFixture
    ) -> None:
        stats = tracker.stats.pop(HOST)
        tracker.stats[HOST] = {}  # whatever: something that we read is not as we know it

        with caplog.at_level(logging.ERROR):
            tracker._update(CONTEXT, tracker.compute_nodes[HOST])

        assert "nova-compute is not affected" in caplog.text
        assert not listener.next(NodeReported, after=1).ready

        # and once it is as we know it, the next audit makes the node ready, by a complete report
        tracker.stats[HOST] = stats
        tracker.update_available_resource(CONTEXT, HOST)
        told = listener.next(NodeReported, after=2)
        assert told.ready and told.complete

    def test_an_audit_that_fails_half_way_empties_no_report(
        self, tracker: Tracker, hooks: Hooks, listener: Listener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given an instance, and an audit in which nova-conductor does not answer after Nova has emptied its numbers
        def times_out(*_args: object, **_kwargs: object) -> None:
            raise MessagingTimeout("nova-conductor does not answer")

        tracker.instance_claim(CONTEXT, guest(tracker, "vm-1", vcpus=2), HOST, {})
        devices = Devices({"vendor_id": "8086", "product_id": "1515", "numa_node": 0, "count": 2})
        monkeypatch.setattr(tracker, "pci_tracker", devices)
        monkeypatch.setattr(objects.InstanceList, "get_by_host_and_node", times_out)
        audit = hooks.hooked("update_available_resource", partial(ResourceTracker.update_available_resource, tracker))
        with pytest.raises(MessagingTimeout):
            audit(CONTEXT, HOST)
        assert not tracker.stats[HOST].states
        # when nova-compute saves its devices, and claims, before its next audit
        tracker._update(CONTEXT, tracker.compute_nodes[HOST])
        monkeypatch.setattr(tracker, "pci_tracker", None)
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-2"), HOST, {})
        tracker.build_failed(HOST)  # tells something, so that the silence before it is known
        # then what was known before the audit stays
        listener.wait(lambda: "stats.failed_builds" in listener.of(NodeReported)[-1].leaves)
        told = listener.of(NodeReported)
        assert [one.members for one in told[1:]] == [{"vm-1": Member()}, {}]
        assert [one.ready for one in told] == [True] * 3
        assert told[-1].leaves == {"stats.failed_builds": 1}
        # and the next audit shows what there is
        tracker.update_available_resource(CONTEXT, HOST)
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-3"), HOST, {})
        listener.wait(lambda: "vm-3" in listener.of(NodeReported)[-1].members)
        assert "vm-1" in listener.of(NodeReported)[3].members

    def test_a_full_queue_keeps_that_a_provider_tree_was_written(
        self, tracker: Tracker, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given an agent that reads nothing for a time, and an operator who disables its host
        with agent_that_reads_nothing(hooks, monkeypatch, 4) as waiting:
            for _ in range(2):
                tracker.reportclient.set_traits_for_provider(CONTEXT, NODE, {DISABLED_TRAIT})
            # when more happens than the queue holds, several times
            for index in range(20):
                tracker.instance_claim(CONTEXT, guest(tracker, f"vm-{index}", vcpus=0), HOST, {})
            queued = waiting()
        # then the agent will read the tree, after the complete reports
        assert queued.count(TreeWritten(NODE)) == 1
        assert len(queued) <= 4

    def test_a_full_queue_keeps_that_a_node_is_gone(
        self, tracker: Tracker, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # given a nova-compute with two nodes, and an agent that reads nothing for a time
        tracker.compute_nodes["second"] = record(SECOND, "second")
        tracker._update(CONTEXT, tracker.compute_nodes["second"])
        with agent_that_reads_nothing(hooks, monkeypatch, 5) as waiting:
            # when one of them is removed, and more happens than the queue holds, several times
            tracker.remove_node("second")
            for index in range(20):
                tracker.instance_claim(CONTEXT, guest(tracker, f"vm-{index}", vcpus=0), HOST, {})
            once = waiting()
            # and it comes back
            tracker.compute_nodes["second"] = record(SECOND, "second")
            tracker._update(CONTEXT, tracker.compute_nodes["second"])
            for index in range(20, 40):
                tracker.instance_claim(CONTEXT, guest(tracker, f"vm-{index}", vcpus=0), HOST, {})
            again = waiting()
        # then the agent is told that it is gone, before what there is now
        assert once.count(NodeGone(SECOND)) == again.count(NodeGone(SECOND)) == 1
        nodes = [one.node for one in again if isinstance(one, NodeGone | NodeReported)]
        assert nodes.index(SECOND) == again.index(NodeGone(SECOND)) and nodes.count(SECOND) == 2
        assert len(once) <= 5 and len(again) <= 5

    def test_without_an_agent_nothing_piles_up(self, tracker: Tracker, hooks: Hooks) -> None:
        for index in range(50):
            tracker.instance_claim(CONTEXT, guest(tracker, f"vm-{index}"), HOST, {})

        assert len(channel_of(hooks)._queue) == 0

    def test_a_full_queue_becomes_one_complete_report(
        self, tracker: Tracker, hooks: Hooks, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with agent_that_reads_nothing(hooks, monkeypatch, 3) as waiting:
            for index in range(20):
                tracker.instance_claim(CONTEXT, guest(tracker, f"vm-{index}", vcpus=0), HOST, {})
            queued = waiting()

        assert len(queued) <= 3
        complete = [one for one in queued if isinstance(one, NodeReported) and one.complete]
        assert complete and len(complete[-1].members) >= 18

    @pytest.mark.parametrize("name", METHODS)
    def test_a_nova_without_one_of_our_names_is_recognised(self, tracker: Tracker, name: str) -> None:
        setattr(tracker, name, None)

        assert missing_names(tracker, PciDevTracker, SchedulerReportClient) == [name]

    def test_this_nova_has_all_of_them(self, tracker: Tracker) -> None:
        assert missing_names(tracker, PciDevTracker, SchedulerReportClient) == []


class TestConnection:
    def test_a_second_agent_is_refused_because_one_is_connected(
        self, listener: Listener, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            second = Listener(path)
            eventually(lambda: "another agent" in caplog.text)
            second.stop()

        assert second.heard == []

    def test_the_agent_of_another_host_gets_no_report_and_disconnects(
        self, hooks: Hooks, path: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Or servers for our node would be built elsewhere, and our own agent be told to wait."""
        stranger = Listener(path, "another-host")
        eventually(lambda: "give both the same nova.conf" in caplog.text)
        ours = Listener(path)
        assert ours.next(NodeReported).node == NODE
        ours.stop()
        stranger.stop()
        assert (stranger.heard, stranger.lost) == ([], 0)

    def test_an_agent_that_reconnects_gets_complete_reports_again(
        self, tracker: Tracker, listener: Listener, path: str
    ) -> None:
        listener.stop()
        tracker.instance_claim(CONTEXT, guest(tracker, "vm-1"), HOST, {})

        again = Listener(path)

        told = again.next(NodeReported)
        assert told.complete and told.members == {"vm-1": Member()}
        again.stop()

    def test_a_socket_that_was_removed_is_made_again(
        self, hooks: Hooks, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An operator who removes the state of an agent, and restarts it, removes the socket in the same directory."""
        # given an agent that has ended, and a directory that was removed
        monkeypatch.setattr(channel_module, "LOOK_S", 0.01, raising=False)
        first = Listener(path)
        first.next(TapHello)
        first.stop()
        eventually(lambda: channel_of(hooks)._peer is None)
        shutil.rmtree(os.path.dirname(path))
        # when it starts again
        second = Listener(path)
        # then it reads the tap, although nova-compute was not restarted
        second.next(TapHello)
        second.stop()

    def test_a_report_larger_than_a_frame_arrives_whole(self, tracker: Tracker, hooks: Hooks, path: str) -> None:
        for index in range(3000):
            tracker.stats[HOST].states[f"5e0d8a4a-0000-4000-8000-{index:012d}"] = {}
        tracker._update(CONTEXT, tracker.compute_nodes[HOST])

        listener = Listener(path)

        assert len(listener.next(NodeReported).members) == 3000
        listener.stop()


class TestLoading:
    def test_installed_but_off_it_does_nothing(self, tracker: Tracker) -> None:
        tap = ResourceTrackerTap(tracker)

        assert tap.hooks is None
        assert tracker._update.__func__ is type(tracker)._update

    def test_operators_are_told_every_method_that_is_replaced(self) -> None:
        page = (Path(__file__).resolve().parents[3] / "doc" / "source" / "admin" / "install.rst").read_text()

        assert [name for name in (*METHODS, "save", SET_TRAITS) if f"``{name}``" not in page] == []

    def test_a_nova_whose_client_of_placement_has_another_name_is_logged_and_left_alone(
        self, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        register_opts(nova.conf.CONF)
        nova.conf.CONF.set_override("tap_enabled", True, group="compute_agent")
        monkeypatch.delattr(SchedulerReportClient, SET_TRAITS)
        with caplog.at_level(logging.ERROR):
            tap = ResourceTrackerTap(tracker)
        nova.conf.CONF.clear_override("tap_enabled", group="compute_agent")

        assert tap.missing == [f"SchedulerReportClient.{SET_TRAITS}"] and tap.missing[0] in caplog.text
        assert tap.hooks is None

    def test_it_never_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.ERROR):
            tap = ResourceTrackerTap(object())

        assert tap.hooks is None

    def test_stevedores_complaint_about_us_is_hidden_and_others_are_not(self, caplog: pytest.LogCaptureFixture) -> None:
        logger = logging.getLogger("stevedore.extension")
        with caplog.at_level(logging.ERROR):
            logger.error("Could not load %r: %s", ENTRY_POINT, "KeyError")
            logger.error("Could not load %r: %s", "somebody_else", "KeyError")

        assert ENTRY_POINT not in caplog.text and "somebody_else" in caplog.text
