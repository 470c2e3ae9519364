# SPDX-License-Identifier: Apache-2.0
"""Everything that reads the databases and Placement again, and when."""
