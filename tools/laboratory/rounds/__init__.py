# SPDX-License-Identifier: Apache-2.0
"""Requests that just fit, under our schedulers and under nova-scheduler in turns."""
