# SPDX-License-Identifier: Apache-2.0
"""Test doubles that several rooms of the tests share."""
