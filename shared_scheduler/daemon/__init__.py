# SPDX-License-Identifier: Apache-2.0
"""What every process of either program has: an admin socket, metrics and health, reports, notices to systemd."""
