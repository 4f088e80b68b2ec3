"""How far the clock of a SuperNode may differ from that of the SuperLink, in seconds.

Private part of Flower: the tolerances with which the SuperLink checks the timestamps of authenticated requests.
"""

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

AHEAD: int = SYSTEM_TIME_TOLERANCE
BEHIND: int = SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE
