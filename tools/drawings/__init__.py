# SPDX-License-Identifier: Apache-2.0
"""Draws pages of ``doc/source/reference`` from the code: the state machines, the lives of a claim and an increment."""
