"""Ctrl-C ends a command, wherever it comes and whatever libraries make of it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BEGINNING = """
import gc, os, signal, sys, threading, time, weakref
from wattsched.environment.interrupts import GivenUp, interrupted, later_interrupts, watch_interrupts

def ctrl_c(*_):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.05)

watch_interrupts()
"""

SWALLOWED = {
    # Called at the start and at the end: pressing twice would interrupt whatever comes after the first, too.
    "a callback of the garbage collector": (
        "gc.callbacks.append(lambda phase, _: phase == 'start' and ctrl_c()); gc.collect()"
    ),
    "a callback of a weak reference": "x = set(); kept = weakref.ref(x, ctrl_c); del x",
    "a finalizer": "class Last:\n    __del__ = ctrl_c\nLast()",
}


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", BEGINNING + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("where", SWALLOWED)
def test_what_a_callback_swallows_comes_again(where: str) -> None:
    done = run(f"""
try:
    exec({SWALLOWED[where]!r}, globals())
    gc.callbacks.clear()
    time.sleep(30)
except KeyboardInterrupt:
    print("ended", interrupted())
""")
    assert (done.stdout, done.stderr) == ("ended True\n", "")


def test_a_deadline_that_a_callback_swallows_is_not_told_of() -> None:
    done = run("""
from wattsched.solving.deadline import on_time

class Last:
    def __del__(self):
        time.sleep(0.5)
        sum(range(100))

def work():
    Last()

print(on_time(work, 0.2, lambda: "given up"))
time.sleep(0.6)
""")
    assert (done.stdout, done.stderr) == ("given up\n", "")


def test_an_interrupt_that_is_held_back_comes_afterwards() -> None:
    done = run("""
try:
    with later_interrupts():
        threading.Thread(target=ctrl_c).start()
        ctrl_c()
        with later_interrupts():
            ctrl_c()
        print("made", flush=True)
    print("not reached")
except KeyboardInterrupt:
    print("ended")
""")
    assert (done.stdout, done.stderr) == ("made\nended\n", "")


@pytest.mark.parametrize("error", ["SystemError", "ImportError", "OSError", "ValueError"])
def test_another_error_that_comes_of_it_is_no_error(error: str) -> None:
    done = run(f"""
from wattsched.cli import failures

def command():
    try:
        ctrl_c()
    except KeyboardInterrupt:
        raise {error}("could not be loaded") from None

sys.exit(failures.exit_code_of(command))
""")
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_where_it_is_ignored_it_stays_so() -> None:
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN); watch_interrupts(); ctrl_c(); print('goes on')"
    done = subprocess.run(
        [sys.executable, "-P", "-c", BEGINNING.replace("\nwatch_interrupts()", "") + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("goes on\n", 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
