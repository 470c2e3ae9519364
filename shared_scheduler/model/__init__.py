# SPDX-License-Identifier: Apache-2.0
"""Facts that both programs share: leaves, resources, providers, NUMA cells, services, aggregates. Pure."""
