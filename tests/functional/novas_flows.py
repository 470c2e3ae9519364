# SPDX-License-Identifier: Apache-2.0
"""Which of Nova's own functional tests show which flow, as ``module.Class.test`` below ``nova.tests.functional``.

Of ``EVERY_RUN``, which no other test of ours takes all the way, the first one is for every run of our tests; all
others are for the longer one, and so are the other flows that nobody else takes: they are slow (a resize across cells
is a fifth of all), or the scheduler's part in them is tested in other ways.
"""

from __future__ import annotations

EVERY_RUN = (
    "live migrate, with a growing list of hosts to ignore",
    "image isolation",
    "ports with resource requests",
    "PCI in Placement",
)

FLOWS: dict[str, tuple[str, ...]] = {
    "build": (
        "test_servers.ServersTest.test_create_and_delete_server",
        "test_servers.TraitsBasedSchedulingTest.test_flavor_forbidden_traits_based_scheduling",
        "test_servers.TraitsBasedSchedulingTest.test_flavor_traits_based_scheduling_no_valid_host",
        "test_json_filter.JsonFilterTestCase.test_filter_on_hypervisor_hostname",
    ),
    "multi-create": (
        "test_servers.ServersTest.test_create_multiple_servers",
        "libvirt.test_vgpu.VGPUTests.test_multiple_instance_create",
        "libvirt.test_pci_sriov_servers.PCIServersTest.test_multi_create",
        "regressions.test_bug_1781710.AntiAffinityMultiCreateRequest.test_anti_affinity_multi_create",
    ),
    "build retry through alternates": (
        "test_servers.ServerRescheduleTests.test_rescheduling_when_booting_instance",
        "regressions.test_bug_1671648.TestRetryBetweenComputeNodeBuilds.test_retry_build_on_compute_error",
        "libvirt.test_pci_sriov_servers.PCIResourceRequestReschedulingTest"
        ".test_boot_reschedule_with_proper_pci_device_count",
    ),
    "cold migrate": (
        "test_servers.ServerMovingTests.test_migrate_no_valid_host",
        "test_servers.ServerMovingTests.test_migrate_confirm",
        "regressions.test_bug_1938326.TestMigrateFromDownHost.test_migrate_from_forced_down_host",
    ),
    "resize": (
        "test_servers.ServerMovingTests.test_resize_reschedule_uses_host_lists_not_enough_alts",
        "test_servers.ServerMovingTests.test_resize_confirm",
        "test_servers.ServerMovingTests.test_resize_revert_same_host",
        "test_servers.ServerMovingTests.test_resize_confirm_same_host",
        "test_servers.ServerMovingTests.test_resize_not_enough_resource",
    ),
    "cross-cell resize": (
        "test_cross_cell_migrate.TestMultiCellMigrate.test_resize_confirm_image_backed",
        "test_cross_cell_migrate.TestMultiCellMigrate.test_anti_affinity_group",
        "test_cross_cell_migrate.TestMultiCellMigrate.test_resize_revert_from_stopped",
        "test_cross_cell_migrate.TestMultiCellMigrate.test_cold_migrate_cross_cell_weigher_stays_in_source_cell",
        "test_servers_resource_request.CrossCellResizeWithQoSPort.test_cross_cell_migrate_server_with_qos_ports",
    ),
    "moves whose allocations another writer changes": (
        "test_servers.ConsumerGenerationConflictTest.test_migrate_move_allocation_fails_due_to_conflict",
        "test_servers.ConsumerGenerationConflictTest.test_confirm_migrate_delete_alloc_on_source_fails",
        "test_servers.ConsumerGenerationConflictTest"
        ".test_revert_migrate_delete_dest_allocation_fails_due_to_conflict",
        "test_servers.ConsumerGenerationConflictTest.test_live_migrate_drop_allocation_on_source_fails",
    ),
    "live migrate, with a growing list of hosts to ignore": (
        "test_servers.ServerMovingTests.test_live_migrate_pre_check_fails",
        "test_servers.ServerMovingTests.test_live_migrate",
        "test_servers.ServerMovingTests.test_live_migrate_rollback_cleans_dest_node_allocations",
    ),
    "live migrate, by force": (
        "test_servers.ServerMovingTests.test_live_migrate_force",
        "test_servers.ServerMovingTests.test_live_migrate_rollback_cleans_dest_node_allocations_forced",
    ),
    "live migrate, with NUMA cells": (
        "libvirt.test_numa_live_migration.NUMALiveMigrationPositiveTests.test_numa_live_migration",
        "libvirt.test_numa_live_migration.NUMALiveMigrationNegativeTests.test_insufficient_resources",
        "libvirt.test_numa_live_migration.NUMALiveMigrationRollbackTests.test_rollback",
    ),
    "evacuate": (
        "regressions.test_bug_1669054.ResizeEvacuateTestCase.test_resize_then_evacuate",
        "test_servers.ServerMovingTests.test_evacuate_instance_kept_on_the_hypervisor",
        "test_servers.ServerMovingTests.test_evacuate_host_specified_but_not_forced",
        "regressions.test_bug_1823370.MultiCellEvacuateTestCase.test_evacuate_multi_cell",
    ),
    "evacuate, by force": (
        "test_servers.ServerMovingTests.test_evacuate_forced_host_instance_kept_on_the_hypervisor",
        "test_servers.ServerMovingTestsFromFlatToNested.test_force_evacuate_from_flat_to_nested",
    ),
    "shelve and unshelve": (
        "test_servers.ServerMovingTests.test_shelve_unshelve_to_host",
        "test_servers.ServerMovingTests.test_shelve_offload_unshelve_diff_host",
        "test_availability_zones.TestAvailabilityZoneScheduling.test_unshelve_to_az_a_server_with_az_constraint",
    ),
    "rebuild": (
        "test_servers.ServerRebuildTestCase.test_rebuild_with_image_novalidhost",
        "test_servers.TraitsBasedSchedulingTest.test_rebuild_instance_with_image_traits",
        "libvirt.test_numa_servers.NUMAServersRebuildTests.test_rebuild_server_with_different_numa_topology_fails",
    ),
    "forced host and requested destination": (
        "test_servers.ServerTestV256SingleCellMultiHostTestCase.test_migrate_server_to_host_in_same_cell",
        "regressions.test_bug_1845291.ForcedHostMissingReScheduleTestCase"
        ".test_boot_with_az_and_host_then_migrate_re_schedules",
        "regressions.test_bug_1702454.SchedulerOnlyChecksTargetTest.test_evacuate_server",
    ),
    "availability zones": (
        "test_availability_zones.TestAvailabilityZoneScheduling.test_create_server_to_zone",
        "test_availability_zones.TestAvailabilityZoneScheduling.test_unshelve_server_without_az_contraint",
        "test_availability_zones.TestAvailabilityZoneScheduling.test_live_migrate_implicit_az",
        "test_availability_zones.TestAvailabilityZoneScheduling.test_resize_revert_across_azs",
    ),
    "tenant isolation": (
        "test_aggregates.TenantAggregateFilterTest.test_filter_honors_tenant_id",
        "test_aggregates.TenantAggregateFilterTest.test_filter_with_empty_aggregate",
        "test_aggregates.TestAggregateFiltersTogether.test_tenant_with_az_and_traits_match",
        "test_aggregates.TestAggregateMultiTenancyIsolationFilter.test_aggregate_multitenancy_isolation_filter",
    ),
    "image isolation": (
        "test_aggregates.IsolateAggregateFilterTest.test_filter_with_traits_on_image_and_flavor",
        "regressions.test_bug_1746483.TestBootFromVolumeIsolatedHostsFilter.test_boot_from_volume_with_isolated_image",
        "test_aggregates.IsolateAggregateFilterTest.test_filter_with_no_valid_host",
    ),
    "server groups": (
        "test_server_group.ServerGroupTestV264.test_boot_server_with_anti_affinity_rules",
        "test_server_group.ServerGroupTestV264.test_evacuate_with_anti_affinity",
        "test_server_group.ServerGroupTestV264.test_migrate_with_anti_affinity_confirm_updates_scheduler",
        "test_server_group.TestAntiAffinityLiveMigration.test_serial_no_valid_host_then_pass_with_third_host",
        "regressions.test_bug_1719730.TestRescheduleWithServerGroup.test_reschedule_with_server_group",
    ),
    "soft server groups": (
        "test_server_group.ServerGroupTestV264.test_boot_servers_with_soft_anti_affinity_one_available_host",
        "test_server_group.ServerGroupTestV264.test_boot_servers_with_soft_anti_affinity",
        "test_server_group.ServerGroupTestV264.test_boot_servers_with_soft_affinity",
    ),
    "ports with resource requests": (
        "test_servers_resource_request.PortResourceRequestReSchedulingTest.test_boot_reschedule_success",
        "test_servers_resource_request.ServerMoveWithPortResourceRequestTest.test_evacuate_with_qos_port",
        "test_servers_resource_request.ServerMoveWithPortResourceRequestTest.test_migrate_server_with_qos_ports",
    ),
    "groups in the same subtree": (
        "test_servers_resource_request.MultiGroupResourceRequestBasedSchedulingTest"
        ".test_boot_server_with_two_ports_one_having_resource_request",
        "test_servers_resource_request.ServerMoveWithMultiGroupResourceRequestBasedSchedulingTest"
        ".test_live_migrate_with_qos_port_reschedule_success",
        "test_servers_resource_request.ServerMoveWithMultiGroupResourceRequestBasedSchedulingTest"
        ".test_unshelve_offloaded_server_with_qos_port",
    ),
    "routed networks": (
        "test_routed_networks.RoutedNetworkTests.test_boot_with_two_nics",
        "test_routed_networks.RoutedNetworkTests.test_migrate",
        "test_routed_networks.RoutedNetworkTests.test_evacuate",
        "test_routed_networks.RoutedNetworkTests.test_unshelve_after_shelve",
    ),
    "device profiles": (
        "test_servers.AcceleratorServerTest.test_create_delete_server_ok",
        "test_servers.AcceleratorServerReschedTest.test_resched",
        "test_servers.PortAndFlavorAccelsServerCreateTest.test_accels_from_both_port_and_flavor",
        "test_servers.AcceleratorServerOpsTest.test_shelve_offload_and_unshelve_ok",
    ),
    "PCI passthrough": (
        "libvirt.test_pci_sriov_servers.PCIServersTest.test_create_server_with_pci_dev_and_numa_fails",
        "libvirt.test_pci_sriov_servers.PCIServersWithPortNUMAPoliciesTest.test_socket_policy_fail",
        "libvirt.test_pci_sriov_servers.PCIServersTest.test_same_host_resize_with_pci",
    ),
    "PCI in Placement": (
        "libvirt.test_pci_in_placement.RCAndTraitBasedPCIAliasTests.test_3vfs_asymmetric_split_between_pfs",
        "libvirt.test_pci_in_placement.RCAndTraitBasedPCIAliasTests"
        ".test_device_claim_consistent_with_placement_allocation",
    ),
    "SR-IOV": (
        "libvirt.test_pci_sriov_servers.SRIOVServersTest.test_create_server_with_neutron",
        "libvirt.test_pci_sriov_servers.SRIOVServersTest.test_cold_migrate_server_with_neutron",
    ),
    "vGPU": (
        "libvirt.test_vgpu.DifferentMdevClassesTests.test_create_servers_with_different_mdev_classes",
        "libvirt.test_vgpu.VGPULiveMigrationTests.test_live_migrate_server",
    ),
    "vPMEM": (
        "libvirt.test_vpmem.VPMEMTests.test_create_servers_with_vpmem",
        "libvirt.test_vpmem.VPMEMResizeTests.test_resize",
    ),
    "PCPU with the VCPU fallback": (
        "libvirt.test_numa_servers.NUMAServersTest.test_resize_vcpu_to_pcpu",
        "libvirt.test_numa_servers.ReshapeForPCPUsTest.test_vcpu_to_pcpu_reshape",
        "libvirt.test_numa_servers.NUMAServersTest.test_create_server_with_dedicated_policy_fails",
    ),
    "nested providers": (
        "test_servers.ServerRescheduleTestsWithNestedResourcesRequest.test_rescheduling_when_booting_instance",
        "test_servers.ServerMovingTestsWithNestedResourceRequests.test_live_migrate",
        "test_servers.ServerMovingTestsWithNestedComputes.test_resize_confirm",
    ),
    "sharing providers": (
        "libvirt.test_shared_resource_provider.SharedStorageProviderUsageTestCase"
        ".test_rebuild_instance_with_image_traits_on_shared_rp",
    ),
    "several cells": (
        "test_server_group.ServerGroupTestMultiCell.test_boot_servers_with_affinity",
        "test_servers.ServerTestV256MultiCellTestCase.test_migrate_server_to_host_in_different_cell",
        "test_service.ServiceTestCase.test_service_reset_resets_cell_cache",
    ),
}  # fmt: skip
