# SPDX-License-Identifier: Apache-2.0
"""Mutated messages against everything that receives them."""
