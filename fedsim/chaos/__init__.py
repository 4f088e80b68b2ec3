"""`fedsim chaos`: seeded faults in real runs, and whether each run ended as its undisturbed twin did.

fault     what a fault is, and the trial of one fault in one run
process   runs in copies of this process, which has loaded torch already
disk      file operations of a run: stopped, failing, or lost with the power
oracle    what must hold after a fault
campaign  draws faults by a seed, tries them, counts
inline, grid, ray, federation   the levels: where runs happen, and the faults there
"""
