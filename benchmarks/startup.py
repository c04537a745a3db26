"""Time to import the package and to print the help, as whole processes: best and median of several.

python benchmarks/startup.py
"""

import statistics
import subprocess
import sys
import time


def measure(command: list[str], runs: int = 11) -> None:
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - began)
    print(f"{' '.join(command[1:]):60s} best {min(seconds):.3f} s  median {statistics.median(seconds):.3f} s")


if __name__ == "__main__":
    python = sys.executable
    measure([python, "-c", "pass"])
    measure([python, "-c", "import numpy"])
    measure([python, "-c", "import onecurve"])
    measure([python, "-c", "import onecurve; onecurve.Run, onecurve.Ladder, onecurve.read"])
    measure([python, "-m", "onecurve", "--help"])
