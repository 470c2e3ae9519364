# SPDX-License-Identifier: Apache-2.0
"""The host table of a scheduler: rows, own outstanding claims, and columns to decide with. Pure."""
