"""Run cases: each with a time limit, and with warnings as errors."""

import signal
import warnings
from collections import Counter
from time import perf_counter

from .making import Maker
from .rooms import ROOMS

SECONDS = 20.0  # of computing for one case: a busy machine must not look like a fault
WAITING = 600.0  # seconds of any kind


class Hung(BaseException):
    """A case took too long; no `except Exception` may hide that."""


def run_case(room, number):
    """Make the case of this number, knock at its door, and return what came of it."""
    doors = ROOMS[room]
    door, maker = doors[number % len(doors)], Maker(room, number)

    def ring(*_):
        raise Hung(f"{room} {number}, {door.__name__}: no answer in {SECONDS:g} seconds of computing")

    before = {name: signal.signal(name, ring) for name in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAITING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            door(maker)
        maker.check_untouched()
    except Exception as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(f"case {number} of room {room}, {door.__name__}")
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name, handler in before.items():
            signal.signal(name, handler)
    return door.__name__, maker.told


def run_room(room, numbers, *, fail=None):
    """Run many cases; return what was told of each door, and the seconds.

    `fail` gets the number, the door and the error of each fault; without it, a fault is raised.
    """
    told, begun = {}, perf_counter()
    for number in numbers:
        try:
            door, found = run_case(room, number)
        except (Exception, Hung) as error:
            if fail is None:
                raise
            door, found = ROOMS[room][number % len(ROOMS[room])].__name__, Counter(faults=1)
            fail(number, door, error)
        told.setdefault(door, Counter(cases=0)).update(found)
        told[door]["cases"] += 1
    return told, perf_counter() - begun
