# SPDX-License-Identifier: Apache-2.0
"""What it costs to sign and to verify messages."""
