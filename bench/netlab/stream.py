#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One TCP stream, both ends: what a link really carries, in Mbit/s of payload.

  stream.py receive ADDRESS PORT          accepts one stream, prints the rate and the steadiest and least steady tenth
  stream.py send ADDRESS PORT SECONDS     sends to it

The receiver starts its clock at the first byte and ignores the first tenth of a second (slow start, tbf's full bucket).
"""
import socket
import sys
import time

CHUNK = 1 << 18
WARM_UP = 0.1


def congestion_control(connection):
    name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def receive(address, port):
    with socket.create_server((address, port)) as server:
        connection, _ = server.accept()
    buffer = bytearray(CHUNK)
    samples = []  # (time, bytes so far)
    total = 0
    while True:
        count = connection.recv_into(buffer)
        if count == 0:
            break
        total += count
        samples.append((time.monotonic(), total))
    report(samples, congestion_control(connection))


def report(samples, algorithm):
    begin = samples[0][0] + WARM_UP
    samples = [s for s in samples if s[0] >= begin]
    tenths = []
    mark = samples[0]
    for sample in samples:
        if sample[0] - mark[0] >= 0.1:
            tenths.append((sample[1] - mark[1]) * 8e-6 / (sample[0] - mark[0]))
            mark = sample
    rate = (samples[-1][1] - samples[0][1]) * 8e-6 / (samples[-1][0] - samples[0][0])
    print(f"mbit {rate:.1f} slowest_tenth {min(tenths):.1f} fastest_tenth {max(tenths):.1f} congestion {algorithm}")


def send(address, port, seconds):
    deadline = time.monotonic() + 5
    while True:
        try:
            connection = socket.create_connection((address, port))
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    block = bytes(CHUNK)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        connection.sendall(block)
    print(congestion_control(connection), file=sys.stderr)
    connection.close()


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    elif len(sys.argv) == 5 and sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        sys.exit(__doc__)
