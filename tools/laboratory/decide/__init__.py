# SPDX-License-Identifier: Apache-2.0
"""How fast the decision is, beside Nova's own filter and weigher classes in the same run."""
