# SPDX-License-Identifier: Apache-2.0
"""The read-only page that ``shared-scheduler-manage serve`` shows in a browser."""
