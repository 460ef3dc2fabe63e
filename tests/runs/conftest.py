"""Whole runs of `levada up` on a tiny target: each test has a folder, ports and processes of its own."""
import array
import json
import os
import signal
import socket
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FANOUT = "deployment.disaggregated.windowed_fanout."


def pytest_addoption(parser):
    parser.addoption("--binary", default=os.path.join(ROOT, "build/release/levada"), help="the levada binary to test")
    parser.addoption("--device", default="cpu", help="what servers and trainers compute on: cpu, or cuda, where all share GPU 0")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def processes_in(folder):
    """Command lines of all processes that name this folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().decode(errors="replace").split("\0")
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if state != "Z" and int(pid) != os.getpid() and any(str(folder) in word for word in words):
            found.append((int(pid), words))
    return found


class Run:
    """A recipe in a folder, and the launcher that runs it."""

    def __init__(self, binary, device, folder, consumers=((4, 64), (8, 128), (16, 256)), prompts=48, flywheel=None):
        self.binary, self.folder, self.port = binary, folder, free_port()
        self.prompts, self.consumers = prompts, [f"b{block}" for block, _ in consumers]
        self.recipe = folder / "recipe.yaml"
        with open(folder / "prompts.jsonl", "w") as file:
            for i in range(prompts):
                file.write(json.dumps({"id": f"q{i}", "prompt": f"What is {i} plus {i * 7 % 11}?"}) + "\n")
        server, managed, levada = {"port": self.port}, {"shutdown_grace_s": 20}, {}
        if device == "cuda":
            server["cuda_visible_devices"] = ["0"]
            managed["trainer_cuda_visible_devices"] = ["0"] * len(consumers)
            levada = {"transport": "nvlink", "share_gpus": True}
        recipe = {
            "run_id": "gate", "output_dir": str(folder / "out"),
            "model": {"target_model_path": os.path.join(ROOT, "tests/vectors/tiny/llama"), "torch_dtype": "bfloat16",
                      "draft_num_hidden_layers": 1, "mask_token_id": 3},
            "data": {"prompts_path": str(folder / "prompts.jsonl"), "max_prompts": prompts, "max_length": 256},
            "training": {"strategy": "dflash", "batch_size": 2, "log_interval": 1},
            "levada": {"device": device, "target_layer_ids": [0, 1], "answer_max_tokens": 24, "trainer_threads": 1,
                       "server_threads": 1, **levada},
            "engine": {"max_total_tokens": 8192},
            "deployment": {"mode": "disaggregated", "disaggregated": {
                "control_dir": str(folder / "control"), "backend": "mooncake",
                "managed_local": {"capture_servers": [server], **managed},
                "windowed_fanout": {
                    "window_lookahead": 16, "max_live_refs": 48, "max_live_bytes": 1 << 26,
                    "capture_reservation_bytes": 1 << 20, "capture_max_sample_bytes": 1 << 20,
                    "consumers": [{"consumer_id": f"b{block}", "seed": block, "loss_type": "dflash", "dpace_alpha": 0.5,
                                   "draft_block_size": block, "num_anchors": anchors, "learning_rate": 0.001,
                                   "warmup_ratio": 0.1} for block, anchors in consumers]}}}}
        if flywheel is not None:
            recipe["flywheel"] = flywheel
            recipe["data"] = {"max_length": 256}
        self.recipe.write_text(json.dumps(recipe))

    def start(self, *sets, flags=("--exit-when-done",)):
        words = [self.binary, "up", str(self.recipe), "--plain", "--summary", str(self.folder / "summary.json"), *flags]
        for assignment in sets:
            words += ["--set", assignment]
        self.output = open(self.folder / "up.log", "w")
        self.launcher = subprocess.Popen(words, stdout=self.output, stderr=subprocess.STDOUT)
        return self

    def wait(self, seconds=300):
        try:
            return self.launcher.wait(seconds)
        finally:
            if self.launcher.poll() is None:
                self.launcher.kill()
                self.launcher.wait()
            self.output.close()

    def text(self):
        logs = "".join(f"\n--- {log.name}\n{log.read_text()[-3000:]}" for log in sorted((self.folder / "out/logs").glob("*")))
        return (self.folder / "up.log").read_text()[-6000:] + logs

    def summary(self):
        return json.loads((self.folder / "summary.json").read_text())

    def until(self, condition, seconds=120):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.launcher.poll() is None, self.text()
            if condition():
                return
            time.sleep(0.05)
        raise TimeoutError(self.text())

    def steps_of(self, consumer):
        log = self.folder / "out/logs" / f"{consumer}.log"
        return log.read_text().count('"event":"step"') if log.exists() else 0

    def pid_of(self, *words):
        for pid, line in processes_in(self.folder):
            if all(word in line for word in words) and pid != self.launcher.pid:
                return pid
        return None

    def kill(self, *words):
        pid = self.pid_of(*words)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return pid

    def check_nothing_is_left(self):
        assert processes_in(self.folder) == []
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))
        left = {path.name for path in (self.folder / "control").iterdir()}
        left -= {"windowed-capture.sqlite.lock"}  # belongs to the database beside it
        assert not [name for name in left if name.endswith((".sock", ".lock", ".part", ".tmp"))], left
        assert not [name for name in os.listdir("/dev/shm") if "levada" in name]

    def weights(self, consumer):
        """All numbers of its exported float32 draft."""
        file = (self.folder / "out" / consumer / "draft/model.safetensors").read_bytes()
        return array.array("f", file[8 + int.from_bytes(file[:8], "little"):])

    def check_gate(self, recaptures=None, step_samples=2, told_losses=True):
        """What every run must end with, whatever happened to it. Who completed at an earlier start tells no losses."""
        summary = self.summary()
        assert summary["ok"], self.text()
        assert summary["entries_absent"] == summary["entries_total"] == self.prompts
        assert summary["captures"] == self.prompts + summary["recaptures"]
        if recaptures is not None:
            assert summary["recaptures"] == recaptures
        steps = self.prompts // step_samples
        assert [one["id"] for one in summary["consumers"]] == self.consumers
        for one in summary["consumers"]:
            assert (one["cursor"], one["step"]) == (self.prompts, steps)
            assert one["checkpoint"].endswith(f"gate-step{steps}") and os.path.isdir(one["checkpoint"])
            if told_losses:
                assert one["loss_first"] > 0 and one["loss_last"] > 0 and one["accept_len"] >= 1
            draft = self.folder / "out" / one["id"] / "draft"
            assert (draft / "config.json").exists() and (draft / "model.safetensors").exists()
        self.check_nothing_is_left()
        return summary


@pytest.fixture
def processes_of_a_trainer(request):
    if request.config.getoption("--device") == "cuda":
        pytest.skip("refused by the recipe's check: on GPUs a trainer has one process")
    return 2


@pytest.fixture
def make_run(request, tmp_path):
    runs = []

    def make(**how):
        runs.append(Run(request.config.getoption("--binary"), request.config.getoption("--device"), tmp_path, **how))
        return runs[-1]

    yield make
    for run in runs:
        if hasattr(run, "launcher") and run.launcher.poll() is None:
            run.launcher.kill()
            run.launcher.wait()
