"""The gate run of the fan-out spec, and what must hold when its processes are stopped and killed."""
import json
import os
import signal
import subprocess
import time

import requests

from conftest import FANOUT, processes_in


def test_one_producer_three_consumers(make_run):
    run = make_run().start()
    assert run.wait() == 0, run.text()
    summary = run.check_gate()
    assert summary["peak_live_refs"] <= 48 and summary["peak_live_bytes"] <= 1 << 26
    printed = (run.folder / "up.log").read_text()
    assert "48 of 48" in printed and "24/24" in printed and "recaptures" in printed


def test_one_producer_one_consumer(make_run):
    run = make_run(consumers=((4, 64),)).start()
    assert run.wait() == 0, run.text()
    run.check_gate(recaptures=0)


def test_two_processes_of_a_trainer_train_what_one_does(make_run, processes_of_a_trainer):
    run = make_run(consumers=((4, 64),), prompts=16)
    wide = ("model.torch_dtype=float32", "engine.dtype=bfloat16")
    assert run.start(*wide, FANOUT + f"consumers.0.nproc_per_node={processes_of_a_trainer}").wait() == 0, run.text()
    run.check_gate(step_samples=4)
    two = run.weights("b4")
    assert run.start(*wide, "training.batch_size=4", flags=("--exit-when-done", "--fresh")).wait() == 0, run.text()
    run.check_gate(step_samples=4)
    one = run.weights("b4")
    assert len(one) == len(two) and max(abs(a - b) for a, b in zip(one, two)) < 1e-5
    assert any(a != b for a, b in zip(one, two)), "sums in another order: two processes did train"


def test_a_rank_that_dies_ends_its_trainer_which_is_started_again(make_run, processes_of_a_trainer):
    run = make_run(consumers=((4, 64),))
    run.start(FANOUT + f"consumers.0.nproc_per_node={processes_of_a_trainer}", "levada.max_restarts=1", "training.save_interval=2")
    run.until(lambda: run.steps_of("b4") >= 3)
    ranks = [pid for pid, line in processes_in(run.folder) if "train" in line]
    assert len(ranks) == 2
    os.kill(max(ranks), signal.SIGKILL)  # forked by the other
    assert run.wait() == 0, run.text()
    run.check_gate(step_samples=4)
    assert "starting it again" in (run.folder / "up.log").read_text()


def test_tight_limits_recapture_and_still_end_well(make_run):
    # Windows of one step, slots for nothing but next steps: what the others trained on while b16 slept is captured again.
    run = make_run().start(FANOUT + "max_live_refs=6", FANOUT + "max_outstanding_per_consumer=2",
                           FANOUT + "max_prefetch_per_consumer=2", FANOUT + "window_lookahead=1")
    run.until(lambda: run.pid_of("train", "b16") is not None)
    sleeper = run.pid_of("train", "b16")
    os.kill(sleeper, signal.SIGSTOP)
    try:
        run.until(lambda: run.steps_of("b4") >= 4 and run.steps_of("b8") >= 4)
    finally:
        os.kill(sleeper, signal.SIGCONT)
    assert run.wait() == 0, run.text()
    summary = run.check_gate()
    assert summary["recaptures"] >= 4 and summary["captures"] == 48 + summary["recaptures"]
    assert summary["peak_live_refs"] <= 6
    assert f"= 48 + {summary['recaptures']} recaptures" in (run.folder / "up.log").read_text()


def test_a_sample_that_is_refused_for_good_ends_the_run_at_once(make_run):
    run = make_run().start(FANOUT + "capture_max_sample_bytes=4096")
    began = time.monotonic()
    assert run.wait() == 1
    assert time.monotonic() - began < 60
    printed = (run.folder / "up.log").read_text()
    assert "gate:q" in printed and "cannot be captured" in printed, printed
    run.check_nothing_is_left()


def test_refused_samples_are_skipped_and_counted_if_the_recipe_says_so(make_run):
    run = make_run()
    lines = (run.folder / "prompts.jsonl").read_text().splitlines()
    lines[5] = json.dumps({"id": "q5", "prompt": "Why is the sky blue? " * 12})
    (run.folder / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    run.start(FANOUT + "capture_max_sample_bytes=45000", FANOUT + "skip_failed=1")
    assert run.wait() == 0, run.text()
    summary = run.summary()
    assert summary["ok"] and summary["skipped"] == 1
    assert summary["captures"] == 47 + summary["recaptures"]
    assert [(one["cursor"], one["step"]) for one in summary["consumers"]] == [(48, 24)] * 3
    assert "1 samples that could not be captured" in (run.folder / "up.log").read_text()
    run.check_nothing_is_left()


def test_a_completed_run_is_told_again_and_not_trained_again(make_run):
    run = make_run(consumers=((4, 64),), prompts=8).start()
    assert run.wait() == 0, run.text()
    first = run.check_gate()
    assert run.start().wait(20) == 0
    assert run.summary() == first
    assert "completed earlier" in (run.folder / "up.log").read_text()
    assert run.start(flags=("--exit-when-done", "--fresh")).wait() == 0, run.text()
    run.check_gate()


def test_the_server_answers_while_it_trains_and_afterwards(make_run):
    run = make_run(consumers=((4, 64),), prompts=8).start(flags=())
    url = f"http://127.0.0.1:{run.port}"
    run.until(lambda: "is ready" in (run.folder / "up.log").read_text())

    def ask():
        model = requests.get(url + "/v1/models", timeout=10).json()["data"][0]["id"]
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
        return requests.post(url + "/v1/chat/completions", json=body, timeout=60)

    assert ask().status_code == 200
    run.until(lambda: "serving goes on" in (run.folder / "up.log").read_text())
    assert ask().status_code == 200
    assert run.summary()["ok"]
    run.launcher.send_signal(signal.SIGINT)
    assert run.wait(60) == 130, run.text()
    run.check_gate()


def test_a_stopped_run_is_taken_up_again(make_run):
    run = make_run().start()
    run.until(lambda: run.steps_of("b4") >= 3)
    run.launcher.send_signal(signal.SIGINT)
    run.launcher.send_signal(signal.SIGINT)  # changes nothing
    assert run.wait(60) == 130, run.text()
    run.check_nothing_is_left()
    assert not run.summary()["ok"]
    assert json.loads((run.folder / "control/up.json").read_text())["phase"] == "stopped"
    assert run.start().wait() == 0, run.text()
    run.check_gate()


def test_a_failed_run_is_taken_up_again_once_its_cause_is_gone(make_run):
    run = make_run().start("training.save_interval=2")
    run.until(lambda: run.steps_of("b4") >= 5)
    run.launcher.send_signal(signal.SIGINT)
    assert run.wait(60) == 130, run.text()
    damaged = run.folder / "out/b4/gate-latest/optimizer.safetensors"
    good = damaged.read_bytes()
    damaged.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert run.start("training.save_interval=2").wait() == 1
    assert "optimizer.safetensors" in run.text()
    damaged.write_bytes(good)
    assert run.start("training.save_interval=2").wait() == 0, run.text()
    run.check_gate(told_losses=False)


def test_a_launcher_killed_outright_leaves_no_process_and_can_be_started_again(make_run):
    run = make_run().start()
    run.until(lambda: run.steps_of("b4") >= 2)
    run.launcher.kill()
    run.launcher.wait()
    run.output.close()
    for _ in range(400):
        if not processes_in(run.folder):
            break
        subprocess.run(["sleep", "0.05"], check=True)
    assert processes_in(run.folder) == []
    began = time.monotonic()
    assert run.start().wait() == 0, run.text()
    assert time.monotonic() - began < 120, "claims of the dead producer are taken back at once, not after capture_timeout"
    run.check_gate()


def test_a_killed_consumer_is_started_again_and_misses_nothing(make_run):
    run = make_run().start("levada.max_restarts=1", "training.save_interval=2")
    run.until(lambda: run.steps_of("b8") >= 3)
    assert run.kill("train", "b8")
    assert run.wait() == 0, run.text()
    run.check_gate()


def test_after_a_killed_server_the_next_start_ends_soon(make_run):
    run = make_run().start()
    run.until(lambda: run.steps_of("b4") >= 3)
    assert run.kill("serve")
    assert run.wait() == 1
    assert "server-0 was killed by signal 9" in (run.folder / "up.log").read_text()
    # Far less than capture_timeout_s, 300: nobody is left who could write late.
    assert run.start().wait(120) == 0, run.text()
    run.check_gate()


def test_without_restarts_a_killed_consumer_fails_the_run_and_the_others_finish(make_run):
    run = make_run().start(FANOUT + "detach_grace_s=2", FANOUT + "consumer_heartbeat_timeout_s=3",
                           FANOUT + "consumer_heartbeat_interval_s=1")
    run.until(lambda: run.steps_of("b8") >= 1)
    assert run.kill("train", "b8")
    assert run.wait() == 1, run.text()
    summary = run.summary()
    assert not summary["ok"]
    assert [one["step"] for one in summary["consumers"] if one["id"] != "b8"] == [24, 24], run.text()
    run.check_nothing_is_left()


def test_status_tells_how_a_run_stands(make_run):
    run = make_run(consumers=((4, 64),), prompts=8).start()
    run.until(lambda: (run.folder / "control/up.json").exists())
    status = subprocess.run([run.binary, "status", str(run.folder / "control")], capture_output=True, text=True)
    assert status.returncode == 0 and f"process {run.launcher.pid}" in status.stdout
    assert run.wait() == 0, run.text()
    status = subprocess.run([run.binary, "status", str(run.recipe), "--json"], capture_output=True, text=True)
    assert json.loads(status.stdout) == run.summary()


def test_two_launchers_of_one_run_are_refused(make_run):
    run = make_run(consumers=((4, 64),), prompts=8).start()
    run.until(lambda: (run.folder / "control/up.lock").exists())
    second = subprocess.run([run.binary, "up", str(run.recipe)], capture_output=True, text=True)
    assert second.returncode == 2 and "in use by another" in second.stderr
    assert run.wait() == 0, run.text()
    assert os.path.exists(run.folder / "summary.json")
