"""Freed memory stays in the process, so that training does not fault its pages in at every step."""

import platform

from fedsim.allocator import keep_freed_memory


def test_the_thresholds_are_accepted_where_there_are_any() -> None:
    assert keep_freed_memory() == (platform.libc_ver()[0] == "glibc")
