# SPDX-License-Identifier: Apache-2.0
"""Draws ``doc/state_machines.rst`` from the tables in the code."""
