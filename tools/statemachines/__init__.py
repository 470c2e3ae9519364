# SPDX-License-Identifier: Apache-2.0
"""Draws ``doc/source/reference/state_machines.rst`` from the tables in the code."""
