# SPDX-License-Identifier: Apache-2.0
"""Programs that show how to use parts of this project."""
