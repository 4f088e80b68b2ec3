"""The level `federation` of `fedsim chaos`: a real federation on this machine, and what happens to real machines.

network     hosts: network namespaces with a bridge between them
relay       a cable that loses and delays packets
deployment  a federation on these hosts, operated with the command `fedsim deploy`
machines    faults: processes and machines die, hang or lose their network, the operator's connection drops
certificates  faults: certificates expire or are replaced in the middle of a run
federation  the level
"""
