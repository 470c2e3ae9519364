# SPDX-License-Identifier: Apache-2.0
"""Measures questions to a store with many records."""
