# SPDX-License-Identifier: Apache-2.0
"""Random operations on servers, for some minutes, while schedulers are killed and hosts are lost.

============== =========================================================================
module         subject
============== =========================================================================
history        the operations and faults with their times
environment    the cloud of a run
servers        the operations of one user, one after the other
fault_injector the faults
sampler        the state of the hosts at each moment
reasons        checks that each failure has the correct reason
traces         the operations on a server, and its log lines
run            the whole run
command        the command line
============== =========================================================================
"""
