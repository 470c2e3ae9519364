# SPDX-License-Identifier: Apache-2.0
"""The answers to operators' questions, as plain data: the Python library behind the commands and the page."""
