# SPDX-License-Identifier: Apache-2.0
"""Planted mistakes, and whether the tests notice them."""
