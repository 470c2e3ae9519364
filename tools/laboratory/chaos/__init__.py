# SPDX-License-Identifier: Apache-2.0
"""Random operations on servers, for minutes, while schedulers are killed and hosts are lost.

============== =========================================================================
module         subject
============== =========================================================================
history        what happened, and when
environment    the cloud in which it happens
servers        the operations of one user, one after the other
fault_injector the faults
sampler        what was true at each moment
reasons        whether each failure gave its true reason
traces         what was done to a server, and what the services logged of it
run            all of it
command        the command line
============== =========================================================================
"""
