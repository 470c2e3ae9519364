# SPDX-License-Identifier: Apache-2.0
"""Helpers around Nova's own objects that both programs use."""
