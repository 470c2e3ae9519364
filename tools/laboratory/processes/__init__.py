# SPDX-License-Identifier: Apache-2.0
"""Starts, checks, queries, stops and measures processes.

========== =================================================================================
module     subject
========== =================================================================================
table      processes that this project started, by id and start time, also for a later command
startup    services and steps in the order of their dependencies
controlled programs of this project, which answer questions
control    questions and answers on a local socket
usage      CPU time and memory
========== =================================================================================
"""
