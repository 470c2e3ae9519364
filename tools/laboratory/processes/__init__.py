# SPDX-License-Identifier: Apache-2.0
"""Processes: start, watch, ask, stop and measure them.

========== =================================================================================
module     subject
========== =================================================================================
table      processes that we started, known by id and start time, also to a later command
startup    services and steps in the order of what they need
controlled our own programs, which answer questions
control    questions and answers on a local socket
usage      CPU time and memory
========== =================================================================================
"""
