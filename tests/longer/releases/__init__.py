# SPDX-License-Identifier: Apache-2.0
"""Programs that run with the code of different releases, for ``tests/longer/test_adjacent_release.py``."""
