"""Submit jobs to a Dormouse cluster and follow them, over NATS."""

from .client import Client, Wait
from .codec import Event, Submission
from .errors import Denied, DormouseError, Refused, TimedOut, Unavailable

__all__ = ["Client", "Denied", "DormouseError", "Event", "Refused", "Submission", "TimedOut", "Unavailable", "Wait"]
__version__ = "0.1.0"
