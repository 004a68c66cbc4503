# SPDX-License-Identifier: Apache-2.0
"""The program on a real pseudo-terminal, whose output a terminal emulator (pyte) draws."""
import codecs
import fcntl
import os
import select
import struct
import subprocess
import termios
import time

import pyte
import pytest

BINARY = os.environ["SLIPSTREAM_BINARY"]
REDRAW = "\r\x1b[K"  # what every drawing of the bar begins with


class Terminal:
    """A program on a terminal of its own: what it printed, and what a person would see."""

    def __init__(self, *arguments, columns=80):
        self.master, slave = os.openpty()
        self.resize(columns)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self.program = subprocess.Popen([BINARY, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave,
                                        preexec_fn=own_terminal, env=dict(os.environ, TERM="xterm"))
        os.close(slave)
        self.columns, self.text = columns, ""
        self.decoder = codecs.getincrementaldecoder("utf-8")()

    def resize(self, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def read(self, done=lambda printed: False, seconds=120):
        """Until done(what was printed), or the program has ended."""
        end = time.monotonic() + seconds
        while not done(self.text):
            assert time.monotonic() < end, self.text[-2000:]
            if not select.select([self.master], [], [], 1)[0]:
                continue
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the last process that had the terminal open is gone
                return
            self.text += self.decoder.decode(data)

    def wait_for(self, text):
        self.read(lambda printed: text in printed)

    def wait_for_drawings(self, count):
        before = self.text.count(REDRAW)
        self.read(lambda printed: printed.count(REDRAW) >= before + count)

    def code(self):
        self.read()
        os.close(self.master)
        return self.program.wait(timeout=60)

    def screen(self):
        screen = pyte.Screen(self.columns, 40)
        pyte.Stream(screen).feed(self.text)
        return [line.rstrip() for line in screen.display if line.strip()]


def train(steps, columns=80):
    return Terminal("train", "--workers", 2, "--task", "fashion-mnist", "--model", "mlp", "--steps", steps, columns=columns)


@pytest.mark.parametrize("columns", [50, 80, 160])
def test_the_bar_stays_on_one_line(columns):
    terminal = train(steps=200, columns=columns)
    assert terminal.code() == 0, terminal.text
    assert terminal.text.count(REDRAW) > 3
    bars = [line for line in terminal.screen() if "mean loss" in line]
    assert len(bars) == 1 and "step 200/200" in bars[0], terminal.screen()


def test_the_bar_follows_the_windows_size():
    terminal = train(steps=100_000)
    terminal.wait_for("step 2")
    terminal.resize(44)
    terminal.wait_for_drawings(10)
    drawn = terminal.text.split(REDRAW)
    assert max(map(len, drawn[:-8])) > 60 and max(map(len, drawn[-8:-1])) < 44, drawn
    terminal.type(b"\x03")
    assert terminal.code() == 130, terminal.text


def test_ctrl_c_is_acknowledged_on_a_line_of_its_own_and_ends_in_order():
    terminal = train(steps=100_000)
    terminal.wait_for("step 2")
    terminal.type(b"\x03")
    terminal.wait_for("stopping")
    assert terminal.code() == 130, terminal.text
    screen = terminal.screen()
    assert any(line.startswith("slipstream: stopping; once more to stop at once") for line in screen), screen
    assert any("the 2 workers' weights are bit-identical" in line for line in screen), screen


def test_a_second_ctrl_c_ends_it_at_once():
    terminal = train(steps=100_000)
    terminal.wait_for("step 2")
    terminal.type(b"\x03")
    terminal.wait_for("once more to stop at once")
    terminal.type(b"\x03")
    assert terminal.code() in (130, 137), terminal.text
