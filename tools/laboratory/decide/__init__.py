# SPDX-License-Identifier: Apache-2.0
"""The speed of the decision, compared with Nova's own filter and weigher classes in the same run."""
