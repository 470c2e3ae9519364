# SPDX-License-Identifier: Apache-2.0
"""Test doubles that several packages of tests share."""
