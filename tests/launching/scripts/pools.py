"""Processes of each start method, with functions of this file."""

import multiprocessing
import sys


def square(number):
    return number * number, __name__, multiprocessing.current_process().name != "MainProcess"


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.map(square, range(3)))
