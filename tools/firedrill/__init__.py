# SPDX-License-Identifier: Apache-2.0
"""Faults on a real RabbitMQ: real processes, threads, transport and cores, imitated Nova and Placement."""
