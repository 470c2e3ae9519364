# SPDX-License-Identifier: Apache-2.0
"""Anything that can be done with servers, at random and for minutes, while schedulers die and hosts are lost.

`story` what happened and when; `ground` the cloud it happens in; `servers` what one user does, one thing after the
other; `disorder` what goes wrong meanwhile; `witness` what was true at each moment; `reasons` whether each failure told
the truth; `run` all of it; `command` the command line.
"""
