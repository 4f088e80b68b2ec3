"""Checks of the machine: GPUs, Ray, disk, clock."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fedsim.config import RunConfig
from fedsim.deploy.finding import Finding, ok, problem, warning
from fedsim.errors import ConfigError
from fedsim.flower import clock_tolerance

LITTLE, TOO_LITTLE = 2e9, 2e8  # bytes of free disk space
RAY_PATIENCE, DRIVER_PATIENCE = 120, 20  # seconds
QUERY_TORCH = (
    "import json, torch; seen = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())];"
    "print(json.dumps([torch.__version__, torch.version.cuda, seen]))"
)
DRIVERS = ("/dev/nvidiactl", "/dev/kfd")  # of NVIDIA and AMD
START_RAY = "import ray; ray.init(num_cpus=1, include_dashboard=False); ray.get(ray.remote(lambda: 0).remote())"


def gpus(device: str = "auto", visible: str = "") -> Finding:
    """Compares the GPUs that torch sees with those of the driver; the configured `device` must be among them.

    `visible` is the CUDA_VISIBLE_DEVICES that the node is started with.
    """
    try:
        kind, _, number = RunConfig(device=device).device.partition(":")
    except ConfigError as error:
        return problem("device", str(error), "correct device in the node's config")
    if kind == "cpu":
        return ok("device", "cpu")
    if kind == "auto" and not any(Path(driver).exists() for driver in DRIVERS) and shutil.which("nvidia-smi") is None:
        return ok("GPUs", "none: training runs on the CPU")  # without a driver; importing torch would take seconds
    limit = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    torch = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", QUERY_TORCH], capture_output=True, text=True, env={**os.environ, **limit}
    )
    if torch.returncode:
        told, remedy = _last_line(torch.stderr), f"{sys.executable} -m pip install --force-reinstall torch"
        return problem("GPUs", f"torch cannot be used: {told}", remedy)
    release, built, seen = json.loads(torch.stdout)
    count, newest = _driver()
    hidden = visible or os.environ.get("CUDA_VISIBLE_DEVICES")
    reason, remedy = _why_hidden(built, count, newest, hidden)
    if kind == "cuda" and int(number or 0) >= len(seen):
        return problem("device", f"{device} was asked for, but torch {release} sees {len(seen)} GPUs: {reason}", remedy)
    if count > len(seen) and hidden is None:
        return warning("GPUs", f"nvidia-smi sees {count}, torch {release} {len(seen)}: {reason}", remedy)
    if seen:
        return ok("GPUs", f"{len(seen)} ({', '.join(seen)}), torch {release} for CUDA {built}")
    return ok("GPUs", "none: training runs on the CPU")


def _driver() -> tuple[int, str]:
    """The number of GPUs that nvidia-smi lists, and the newest CUDA version that its driver can run."""
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=DRIVER_PATIENCE)
        shown = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=DRIVER_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return 0, ""
    newest = re.search(r"CUDA Version:\s*([\d.]+)", shown.stdout)
    return len(re.findall(r"^GPU \d+:", listed.stdout, re.MULTILINE)), newest.group(1) if newest else ""


def _why_hidden(built: str | None, count: int, newest: str, hidden: str | None) -> tuple[str, str]:
    """Why torch sees fewer GPUs than the driver, and the remedy."""
    if count == 0:
        return "nvidia-smi lists none either", "install the NVIDIA driver, or use device=cpu"
    if built is None:
        return "it is built without CUDA", "install a CUDA build of torch, or use device=cpu"
    if newest and _version(newest) < _version(built):
        return (
            f"the driver runs CUDA {newest} at most, torch is built for {built}",
            f"update the NVIDIA driver, or install torch for CUDA {newest}",
        )
    if hidden is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={hidden} hides the others",
            "correct CUDA_VISIBLE_DEVICES, or choose another device",
        )
    return "the driver does not answer torch", "see whether `nvidia-smi` works for this user, then restart the driver"


def _version(release: str) -> list[int]:
    return [int(part) for part in release.split(".") if part.isdigit()]


def ray() -> Finding:
    """Whether Ray starts, tried in a process group of its own, which is ended afterwards."""
    process = subprocess.Popen(
        [sys.executable, "-c", START_RAY],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        _, output = process.communicate(timeout=RAY_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return problem("ray", f"ray did not start within {RAY_PATIENCE} s", "use --engine inline, or free memory")
    if process.returncode:
        return problem("ray", f"ray does not start: {_last_line(output)}", "use --engine inline, or reinstall ray")
    return ok("ray", "ray starts")


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "without a message"


def disk(what: str, folder: Path) -> Finding:
    """Whether files can be written in `folder`, or it can be created, and how much space is free."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        return problem(
            what,
            f"{folder} cannot be written: {error.strerror or error}",
            f"give this user the right to write {existing}",
        )
    told = f"{folder} can be written, {free / 1e9:.1f} GB are free"
    if free < TOO_LITTLE:
        return problem(what, told, f"free some space on the disk of {folder}")
    if free < LITTLE:
        return warning(what, told, f"free some space on the disk of {folder}")
    return ok(what, told)


def clock(reference: float, here: float | None = None) -> Finding:
    """Compares this machine's clock with a reference time (Unix); `here`: this clock when the reference was taken."""
    ahead = (time.time() if here is None else here) - reference
    told = f"this clock is {abs(ahead):.1f} s {'ahead of' if ahead >= 0 else 'behind'} the reference"
    if abs(ahead) <= clock_tolerance.AHEAD:
        return ok("clock", told)
    return problem(
        "clock",
        f"{told}; Flower refuses nodes more than {clock_tolerance.AHEAD} s ahead or {clock_tolerance.BEHIND} s behind",
        "keep the clock by NTP: `timedatectl set-ntp true`, or chrony",
    )
