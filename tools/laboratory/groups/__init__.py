# SPDX-License-Identifier: Apache-2.0
"""Members of one server group that are requested, or moved, at the same moment."""
